#include "tools/pipe/library/options.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "transport/base/parse_number.h"

namespace rdfs::pipe {
namespace {

using transport::Key;

constexpr std::string_view kForBoth =
    "key_file=FILE, require=verbs|shm|tcp, encrypt, timeout=SECONDS, wait=SECONDS";
constexpr std::string_view kForSenders = ", plaintext, compress[=1-19]";
constexpr std::string_view kForReceivers = ", listen=ADDRESS, verbs_port=N";

struct Word {
  std::string_view name;
  std::optional<std::string_view> value;
};

// Takes the next word off the list.
Word NextWord(std::string_view& list) {
  const std::size_t end = std::min(list.find(','), list.size());
  const std::string_view text = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::optional<unsigned> NumberIn(const Word& word, unsigned least, unsigned most) {
  const auto number = ParseNumber<unsigned>(word.value.value_or(""));
  if (!number || *number < least || *number > most) return std::nullopt;
  return number;
}

bool ApplySeconds(const Word& word, std::chrono::milliseconds& out) {
  const auto seconds = ParseNumber<double>(word.value.value_or(""));
  if (!seconds || !(*seconds >= 0 && *seconds <= 1e6)) return false;  // nor what is no number (NaN)
  out = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(*seconds));
  return true;
}

// Whether the word is one of both ends, and its value one that it may have.
bool ApplyCommon(const Word& word, CommonOptions& out, std::string& key_file) {
  if (word.name == "key_file" && word.value && !word.value->empty()) {
    key_file = *word.value;
    return true;
  }
  if (word.name == "require" && word.value) {
    out.require = transport::KindFromName(*word.value);
    return out.require.has_value();
  }
  if (word.name == "encrypt" && !word.value) return out.encrypt = true;
  if (word.name == "timeout") return ApplySeconds(word, out.silence);
  if (word.name == "wait") return ApplySeconds(word, out.wait.emplace());
  return false;
}

bool ApplyForSender(const Word& word, SendOptions& out) {
  if (word.name == "plaintext" && !word.value) return out.plaintext = true;
  if (word.name != "compress") return false;
  const auto level = word.value ? NumberIn(word, 1, 19) : 3U;
  if (level) out.level = static_cast<int>(*level);
  return level.has_value();
}

bool ApplyForReceiver(const Word& word, ReceiveOptions& out) {
  if (word.name == "listen" && word.value && !word.value->empty()) {
    out.listen = *word.value;
    return true;
  }
  const auto port = word.name == "verbs_port" ? NumberIn(word, 1, 0xffff) : std::nullopt;
  if (port) out.verbs_port = static_cast<std::uint16_t>(*port);
  return port.has_value();
}

Status ReadKey(const char* text, const std::string& file, CommonOptions& out) {
  if ((text != nullptr) == !file.empty()) {
    return {Code::kInvalidArgument, "give a key, or key_file=FILE among the options, not both"};
  }
  if (text == nullptr) {
    RDFS_ASSIGN_OR_RETURN(out.key, Key::FromFile(file));
    return {};
  }
  const std::string_view key(text);
  if (key.empty() || key.size() > Key::kMaxBytes) {
    return {Code::kInvalidArgument,
            key.empty() ? "the key is empty" : "the key is longer than 1024 bytes"};
  }
  out.key = Key(key);
  return {};
}

template <typename Options, typename Apply>
Status ApplyWords(std::string_view list, const char* key, Options& out, Apply apply,
                  std::string_view more) {
  std::string key_file;
  while (!list.empty()) {
    const std::string whole(list.substr(0, list.find(',')));
    const Word word = NextWord(list);
    if (whole.empty() || ApplyCommon(word, out, key_file) || apply(word, out)) continue;
    return {Code::kInvalidArgument, "'" + whole + "' is no option of a stream: there are " +
                                        std::string(kForBoth) + std::string(more)};
  }
  return ReadKey(key, key_file, out);
}

}  // namespace

Result<SendOptions> SendOptionsFrom(std::string_view hosts, std::uint16_t port, const char* key,
                                    std::string_view words) {
  SendOptions out;
  out.port = port;
  RDFS_RETURN_IF_ERROR(ApplyWords(words, key, out, ApplyForSender, kForSenders));
  RDFS_ASSIGN_OR_RETURN(out.hosts, ParseHosts(std::string(hosts), port));
  return out;
}

Result<ReceiveOptions> ReceiveOptionsFrom(std::uint16_t port, const char* key,
                                          std::string_view words) {
  ReceiveOptions out;
  out.port = port;
  RDFS_RETURN_IF_ERROR(ApplyWords(words, key, out, ApplyForReceiver, kForReceivers));
  return out;
}

}  // namespace rdfs::pipe
