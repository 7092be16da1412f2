#include "tools/copy/remote/receiver.h"

#include <sys/stat.h>

#include <utility>

#include "tools/copy/command/setup.h"
#include "tools/copy/file/names.h"
#include "tools/pipe/wire/lane_loop.h"
#include "transport/session/peer.h"

namespace rdfs::copy {

namespace {

// For messages: "/" needs no slash behind it.
std::string Beneath(const std::string& root, const std::string& name) {
  return root.ends_with('/') ? root + name : Joined(root, name);
}

Status SomethingIsMissing() {
  return {Code::kProtocolError, "something is missing of what the other rdcp has sent"};
}

}  // namespace

Receiver::Receiver(Talk& talk, std::shared_ptr<transport::Domain> domain, ReceiverSettings settings)
    : talk_(talk), domain_(std::move(domain)), settings_(std::move(settings)) {}

Status Receiver::Run() {
  Status status = Drive();
  // Whoever has everything confirmed, and went without a word, has what he wanted.
  if (confirmed_ && talk_.lost()) status = Status();
  if (!status.ok()) {
    // Nothing is written any more, and nothing half-made is left, when the peer hears of it.
    crew_.reset();
    destination_.reset();
  }
  return talk_.Part(std::move(status));
}

Status Receiver::Drive() {
  const Talk::OnMessage on_message = [this](MessageType type, ByteSpan message) {
    return OnMessage(type, message);
  };
  while (!over_) {
    RDFS_ASSIGN_OR_RETURN(const bool heard, talk_.Hear(on_message, nullptr));
    RDFS_ASSIGN_OR_RETURN(const bool brought, TakeFromLanes());
    RDFS_ASSIGN_OR_RETURN(const bool done, CollectFromCrew());
    if (end_ && !confirmed_ && finished_ == end_->batches) RDFS_RETURN_IF_ERROR(Finish());
    RDFS_RETURN_IF_ERROR(OfferMove());
    if (on_turn) RDFS_RETURN_IF_ERROR(on_turn());
    if (heard || brought || done || over_) continue;
    const bool listens = crew_ != nullptr && !talk_.congested();
    RDFS_RETURN_IF_ERROR(talk_.Sleep(
        {listens ? crew_->fd() : -1, lanes_ != nullptr && !confirmed_ ? lanes_->fd() : -1}));
  }
  return {};
}

Status Receiver::OnMessage(MessageType type, ByteSpan message) {
  if (type == MessageType::kBegin && !begun_) {
    RDFS_ASSIGN_OR_RETURN(begun_, begin_.Take(message));
    return begun_ ? OnBegin(begin_.begin()) : Status();
  }
  if (type == MessageType::kBatch && crew_ != nullptr && !end_) {
    RDFS_ASSIGN_OR_RETURN(const BatchWire batch, DecodeBatch(message, ring_.size.slot_bytes));
    return OnBatch(batch);
  }
  if (type == MessageType::kEnd && crew_ != nullptr && !end_) return OnEnd(message);
  if (type == MessageType::kTotals && settings_.counts && !totals_ && !end_) {
    RDFS_ASSIGN_OR_RETURN(totals_, DecodeTotals(message));
    return {};
  }
  if (type == MessageType::kFarewell && confirmed_) {
    over_ = true;
    return {};
  }
  return OutOfTurn();
}

Status Receiver::OnBegin(const Begin& begin) {
  if (settings_.allow) RDFS_RETURN_IF_ERROR(settings_.allow(begin, talk_.failures_heard()));
  if (Status status = OpenDestination(begin); !status.ok()) {
    failed_here_ = true;
    return status;
  }
  RDFS_ASSIGN_OR_RETURN(
      ring_, pipe::ShareRing(talk_.lane(), *domain_, "rdcp", ChooseRing(talk_, further != nullptr),
                             kMinSlotBytes));
  RDFS_ASSIGN_OR_RETURN(crew_, ReceiveCrew::Create(*destination_, ring_.memory->bytes(),
                                                   {.keep = settings_.options.keep,
                                                    .names = names_,
                                                    .slot_bytes = ring_.size.slot_bytes,
                                                    .slots = ring_.size.slots,
                                                    .threads = settings_.threads,
                                                    .copied = settings_.copied,
                                                    .policy = settings_.policy,
                                                    .remove = settings_.remove,
                                                    .verify = settings_.verify,
                                                    .dry_run = settings_.dry_run,
                                                    .asked = settings_.asked,
                                                    .gone = settings_.gone,
                                                    .unsent = settings_.unsent}));
  return talk_.Say(Welcome{ring_.shared, ring_.size.slot_bytes, ring_.size.slots}.Encode());
}

Status Receiver::OfferMove() {
  if (talk_.moved() && moved_ring_) {
    ring_.shared = *std::exchange(moved_ring_, std::nullopt);
    return talk_.Say(Welcome{ring_.shared, ring_.size.slot_bytes, ring_.size.slots}.Encode());
  }
  if (offered_ || crew_ == nullptr || end_) return {};
  transport::Connection* const better = talk_.better();
  if (better == nullptr) return {};
  offered_ = true;
  const auto ring = better->Share(*ring_.memory);
  // Where it cannot be pinned we stay.
  if (!ring.ok()) return {};
  moved_ring_ = *ring;
  return talk_.Say(EncodeBare(MessageType::kReady));
}

Status Receiver::OpenDestination(const Begin& begin) {
  const std::string path = settings_.destination.empty() ? "." : settings_.destination;
  struct stat info {};
  const bool is_directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (settings_.directory_wanted && begin.sources.size() == 1 && !is_directory) {
    return {Code::kInvalidArgument,
            "there is no directory '" + Shown(path) + "', and there is more than one SRC"};
  }
  Targets targets{".", {}};
  if (!begin.sources.empty()) {
    std::vector<SourceFacts> sources;
    for (const Begin::Source& source : begin.sources) {
      sources.push_back({source.name.empty() ? "." : source.name, source.is_directory});
    }
    RDFS_ASSIGN_OR_RETURN(targets, PlaceHere(sources, path));
    if (settings_.remove) RDFS_RETURN_IF_ERROR(CheckApart(targets.names));
  }
  DestinationOptions options = settings_.options;
  options.one_file_system = settings_.asked.one_file_system;
  const auto here = transport::session::ReadHostIdentity().boot_id;
  options.same_machine = begin.boot == here && begin.boot != decltype(here){};
  options.meet = Meet(targets.names);
  const std::string root = targets.root == "." ? std::string() : targets.root;
  options.report = [this, root](const std::string& name, const Status& why) {
    const std::lock_guard lock(late_mutex_);
    late_.push_back({Notice::What::kFailed, Beneath(root, name), why.message()});
  };
  RDFS_ASSIGN_OR_RETURN(destination_, Destination::Open(targets.root, std::move(options)));
  for (std::uint32_t i = 0; i < targets.names.size(); ++i) {
    RDFS_RETURN_IF_ERROR(destination_->AddTarget(i, targets.names[i]));
    names_.push_back(Beneath(root, targets.names[i]));
  }
  return {};
}

Status Receiver::OnBatch(const BatchWire& batch) {
  const bool in_turn = lanes_ == nullptr ? batch.number == next_ : batch.number >= next_;
  if (!in_turn || batch.number >= finished_ + ring_.size.slots ||
      !early_.emplace(batch.number, batch).second) {
    return {Code::kProtocolError, "the other rdcp sent a batch out of turn"};
  }
  while (!early_.empty() && early_.begin()->first == next_) {
    const BatchWire& first = early_.begin()->second;
    ++next_;
    digest_.Add(first.number, first.length, first.digest);
    crew_->Take(first);
    early_.erase(early_.begin());
  }
  return {};
}

// What came before End was said, and what was still on its way by another lane.
Result<bool> Receiver::TakeFromLanes() {
  if (confirmed_ || crew_ == nullptr) return false;
  while (further != nullptr && !talk_.may_move()) {
    auto lane = further();
    if (lane == nullptr) break;
    if (lanes_ == nullptr) {
      RDFS_ASSIGN_OR_RETURN(lanes_, ReceiveLanes::Create(ring_));
    }
    RDFS_RETURN_IF_ERROR(lanes_->Add(std::move(lane)));
  }
  if (lanes_ == nullptr) return false;
  RDFS_RETURN_IF_ERROR(lanes_->Take(brought_));
  for (const BatchWire& batch : brought_) RDFS_RETURN_IF_ERROR(OnBatch(batch));
  if (end_ && !brought_.empty()) RDFS_RETURN_IF_ERROR(CheckDigest());
  return !brought_.empty();
}

Status Receiver::OnEnd(ByteSpan message) {
  RDFS_ASSIGN_OR_RETURN(end_, Tally::Decode(message));
  return CheckDigest();
}

Status Receiver::CheckDigest() const {
  const std::uint64_t due = end_->batches;
  // A lane may still have some of it.
  if (lanes_ != nullptr && due > next_ && due <= finished_ + ring_.size.slots) return {};
  if (due == next_ && early_.empty() && end_->digest == digest_.Value()) return {};
  return SomethingIsMissing();
}

Status Receiver::Tell(const Notice& notice) {
  if (notice.bad()) ++done_.failed;
  return talk_.Tell(notice);
}

Status Receiver::TellLate() {
  std::vector<Notice> late;
  {
    const std::lock_guard lock(late_mutex_);
    late.swap(late_);
  }
  for (const Notice& notice : late) RDFS_RETURN_IF_ERROR(Tell(notice));
  return {};
}

Result<bool> Receiver::CollectFromCrew() {
  if (crew_ == nullptr || talk_.congested()) return false;
  crew_->Collect(outputs_);
  const std::uint64_t before = finished_;
  for (const ReceiveCrew::Output& output : outputs_) {
    if (const auto* done = std::get_if<ReceiveCrew::Done>(&output)) {
      finished_ = done->batches;
    } else if (const auto* notice = std::get_if<Notice>(&output)) {
      RDFS_RETURN_IF_ERROR(Tell(*notice));
    } else if (const auto* want = std::get_if<Want>(&output)) {
      RDFS_RETURN_IF_ERROR(talk_.Say(want->Encode()));
    } else if (const auto* have = std::get_if<Have>(&output)) {
      RDFS_RETURN_IF_ERROR(talk_.Say(have->Encode()));
    } else {
      return std::get<Status>(output);
    }
  }
  RDFS_RETURN_IF_ERROR(TellLate());
  if (finished_ != before) {
    RDFS_RETURN_IF_ERROR(talk_.Say(EncodeCredit(finished_)));
    RDFS_RETURN_IF_ERROR(talk_.Checked(talk_.lane().Flush()));
  }
  return !outputs_.empty();
}

Status Receiver::Finish() {
  RDFS_RETURN_IF_ERROR(crew_->CheckEnd(end_->entries));
  // The sender has told of each that it could not bring.
  if (crew_->unanswered() > end_->failed) return SomethingIsMissing();
  done_.entries = crew_->files();
  done_.bytes = crew_->bytes();
  kept_ = crew_->kept();
  passed_ = crew_->passed();
  crew_.reset();
  destination_.reset();  // tells of links that still waited
  RDFS_RETURN_IF_ERROR(TellLate());
  done_.batches = end_->batches;
  done_.digest = end_->digest;
  confirmed_ = true;
  return talk_.Say(done_.Encode(MessageType::kDone));
}

}  // namespace rdfs::copy
