#include "tools/copy/remote/sender.h"

#include <utility>

#include "tools/copy/command/operand.h"
#include "tools/pipe/wire/lane_loop.h"
#include "tools/pipe/wire/ring.h"

namespace rdfs::copy {

using transport::Completion;

Sender::Sender(Talk& talk, std::shared_ptr<transport::Domain> domain, Begin begin, WalkOptions walk,
               int threads)
    : talk_(talk),
      domain_(std::move(domain)),
      begin_(std::move(begin)),
      walk_(std::move(walk)),
      threads_(threads) {
  std::vector<std::string> names;
  for (const Begin::Source& source : begin_.sources) names.push_back(source.name);
  walk_.turns = Turns(names);
}

Status Sender::Run() {
  Status status = Drive();
  // Its threads stop before we part: nothing is read any more. The lanes end behind our last word.
  if (!status.ok()) {
    if (lanes_ != nullptr) lanes_->Stop();
    crew_.reset();
  }
  return talk_.Part(std::move(status));
}

Status Sender::Drive() {
  RDFS_ASSIGN_OR_RETURN(const std::vector<Bytes> begin, begin_.Encode());
  for (const Bytes& message : begin) RDFS_RETURN_IF_ERROR(talk_.Say(message));
  const Talk::OnMessage on_message = [this](MessageType type, ByteSpan message) {
    return OnMessage(type, message);
  };
  const Talk::OnCompletion on_completion = [this](const Completion& completion) {
    (void)batches_under_way_.Done(completion, Release());
  };
  while (!over_) {
    RDFS_ASSIGN_OR_RETURN(const bool heard, talk_.Hear(on_message, on_completion));
    RDFS_ASSIGN_OR_RETURN(const bool made, TakeFromCrew());
    RDFS_RETURN_IF_ERROR(Move());
    RDFS_RETURN_IF_ERROR(TakeLanes());
    RDFS_RETURN_IF_ERROR(SendReady());
    RDFS_RETURN_IF_ERROR(TellTotals());
    if (on_turn) RDFS_RETURN_IF_ERROR(on_turn());
    if (heard || made || over_) continue;
    const bool listens = crew_ != nullptr && !talk_.congested();
    RDFS_RETURN_IF_ERROR(talk_.Sleep({listens ? crew_->fd() : -1}));
  }
  return {};
}

Status Sender::OnMessage(MessageType type, ByteSpan message) {
  if (type == MessageType::kWelcome && crew_ == nullptr) {
    RDFS_ASSIGN_OR_RETURN(const Welcome welcome, Welcome::Decode(message));
    return Start(welcome);
  }
  if (type == MessageType::kCredit && crew_ != nullptr) {
    RDFS_ASSIGN_OR_RETURN(const std::uint64_t done, DecodeCredit(message));
    return OnCredit(done);
  }
  if (type == MessageType::kWant && crew_ != nullptr) {
    RDFS_ASSIGN_OR_RETURN(const Want want, Want::Decode(message));
    return crew_->Answered(want);
  }
  if (type == MessageType::kHave && crew_ != nullptr) {
    RDFS_ASSIGN_OR_RETURN(Have have, Have::Decode(message));
    return crew_->Has(std::move(have));
  }
  if (type == MessageType::kReady && crew_ != nullptr && !peer_ready_ && talk_.may_move()) {
    peer_ready_ = true;
    return {};
  }
  if (type == MessageType::kWelcome && peer_ready_ && talk_.moved()) {
    RDFS_ASSIGN_OR_RETURN(const Welcome welcome, Welcome::Decode(message));
    return OnWelcomeBehindMove(welcome);
  }
  if (type == MessageType::kDone && ended_) {
    RDFS_ASSIGN_OR_RETURN(done_, Tally::Decode(message));
    if (done_.digest != end_.digest || done_.batches != end_.batches) {
      return {Code::kProtocolError, "what the other end has received is not what was sent"};
    }
    over_ = true;
    return talk_.Say(EncodeBare(MessageType::kFarewell));
  }
  return OutOfTurn();
}

Status Sender::OnCredit(std::uint64_t done) {
  if (done < credit_ || done > next_) {
    return {Code::kProtocolError, "the other rdcp has taken more than was sent"};
  }
  credit_ = done;
  crew_->Credited(done);
  return {};
}

Status Sender::Move() {
  if (!moves() || talk_.moved() || talk_.leaving() || batches_under_way_.count() > 0) return {};
  return talk_.Leave();
}

Status Sender::OnWelcomeBehindMove(const Welcome& welcome) {
  if (welcome.slot_bytes != welcome_.slot_bytes || welcome.slots != welcome_.slots) {
    return {Code::kProtocolError, "the other rdcp has another ring on its better lane"};
  }
  welcome_ = welcome;
  peer_ready_ = false;
  return {};
}

Status Sender::Start(const Welcome& welcome) {
  welcome_ = welcome;
  RDFS_ASSIGN_OR_RETURN(pipe::SendBuffers buffers,
                        pipe::MakeSendBuffers(ChooseRing(talk_, further != nullptr), *domain_,
                                              "rdcp", {welcome.slot_bytes, welcome.slots}));
  memory_ = std::move(buffers.memory);
  walk_.slot_bytes = welcome.slot_bytes;
  RDFS_ASSIGN_OR_RETURN(
      crew_, SendCrew::Create(std::move(walk_), memory_->bytes(), buffers.count, threads_));
  return {};
}

Status Sender::TakeLanes() {
  if (over_ || crew_ == nullptr) return {};
  while (further != nullptr && !ended_ && !talk_.may_move()) {
    auto lane = further();
    if (lane == nullptr) break;
    if (lanes_ == nullptr) {
      RDFS_ASSIGN_OR_RETURN(lanes_, SendLanes::Create({memory_.get(), welcome_.slot_bytes,
                                                       welcome_.slots, Release()}));
    }
    RDFS_RETURN_IF_ERROR(lanes_->Add(std::move(lane)));
  }
  return lanes_ != nullptr ? lanes_->status() : Status();
}

Result<bool> Sender::TakeFromCrew() {
  if (crew_ == nullptr || talk_.congested()) return false;
  crew_->Take(made_);
  for (SendCrew::Output& output : made_) {
    if (const auto* batch = std::get_if<SendCrew::Batch>(&output)) {
      ready_.emplace(batch->number, *batch);
    } else if (const auto* notice = std::get_if<Notice>(&output)) {
      ++end_.failed;
      RDFS_RETURN_IF_ERROR(talk_.Tell(*notice));
    } else if (const auto* ended = std::get_if<SendCrew::Ended>(&output)) {
      batches_ = ended->batches;
    } else {
      return std::get<Status>(output);
    }
  }
  return !made_.empty();
}

Status Sender::SendReady() {
  if (moves()) return {};
  while (!ready_.empty() && ready_.begin()->first == next_ && next_ < credit_ + welcome_.slots) {
    const SendCrew::Batch& batch = ready_.begin()->second;
    digest_.Add(batch.number, batch.length, batch.digest);
    ++next_;
    if (lanes_ != nullptr && lanes_->ready()) {
      lanes_->Put(batch);
    } else {
      RDFS_RETURN_IF_ERROR(SendBatch(batch));
    }
    ready_.erase(ready_.begin());
  }
  // The first lane is one of those that carry, until it says that this was all.
  while (lanes_ != nullptr && !ended_ && batches_under_way_.count() < SendLanes::kMostUnderWay &&
         !talk_.congested()) {
    const auto batch = lanes_->Take();
    if (!batch) break;
    RDFS_RETURN_IF_ERROR(SendBatch(*batch));
  }
  if (batches_ == next_ && !ended_) return SendEnd();
  return {};
}

Status Sender::SendBatch(const SendCrew::Batch& batch) {
  return batches_under_way_.Send(batch, talk_, *memory_, welcome_, Release());
}

BatchesUnderWay::Release Sender::Release() {
  return [this](std::uint32_t buffer) { crew_->Release(buffer); };
}

Status Sender::TellTotals() {
  if (counter == nullptr || totals_told_ || ended_) return {};
  const auto totals = counter->totals();
  if (!totals) return {};
  totals_told_ = true;
  return talk_.Say(EncodeTotals(*totals));
}

Status Sender::SendEnd() {
  ended_ = true;
  end_.batches = next_;
  end_.entries = crew_->entries();
  end_.bytes = crew_->bytes();
  end_.digest = digest_.Value();
  return talk_.Say(end_.Encode(MessageType::kEnd));
}

}  // namespace rdfs::copy
