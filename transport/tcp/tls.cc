// TLS 1.3 over any ByteStream: OpenSSL drives the protocol, a BIO of ours the inner stream.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "transport/tcp/stream.h"

namespace rdfs::transport::tcp {
namespace {

constexpr std::size_t kPskBytes = 32;
// One identity: the PSK is fresh for this stream and known by what came before it.
constexpr std::string_view kIdentity = "rdfs";
// TLS_AES_128_GCM_SHA256 (RFC 8446, B.4): its hash is as long as the PSK.
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x01};
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
// The plaintext of one record, at most (RFC 8446, 5.1).
constexpr std::size_t kRecordBytes = 16 * 1024;
// So that a system call reads several records.
constexpr std::size_t kReadAheadBytes = 64 * 1024;

template <auto Free>
struct With {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using ContextPtr = std::unique_ptr<SSL_CTX, With<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, With<SSL_free>>;
using SessionPtr = std::unique_ptr<SSL_SESSION, With<SSL_SESSION_free>>;
using MethodPtr = std::unique_ptr<BIO_METHOD, With<BIO_meth_free>>;

// What the callbacks of OpenSSL find their stream by.
struct Wire {
  std::unique_ptr<ByteStream> inner;
  std::array<unsigned char, kPskBytes> psk{};
  Status broken;  // why the inner stream failed
  // What the inner stream has not taken of a message that changes the key; before anything else.
  std::vector<std::byte> kept;
  bool keeps = false;  // such a message is being written

  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() { OPENSSL_cleanse(psk.data(), psk.size()); }
};

// False when the inner stream fails. `count`: how much of `bytes` it takes now.
bool WriteNow(Wire& wire, ByteSpan bytes, std::size_t& count) {
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};  // iovec has no const
  const auto taken = wire.inner->Write(std::span(&part, 1));
  count = taken.ok() ? *taken : 0;
  if (!taken.ok()) wire.broken = taken.status();
  return taken.ok();
}

int BioWrite(BIO* bio, const char* text, std::size_t size, std::size_t* written) {
  Wire& wire = *static_cast<Wire*>(BIO_get_data(bio));
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(text), size);
  BIO_clear_retry_flags(bio);
  *written = 0;
  if (!wire.kept.empty()) {
    std::size_t gone = 0;
    if (!WriteNow(wire, wire.kept, gone)) return 0;
    wire.kept.erase(wire.kept.begin(), wire.kept.begin() + static_cast<std::ptrdiff_t>(gone));
  }
  if (wire.kept.empty() && !WriteNow(wire, bytes, *written)) return 0;
  if (wire.keeps && *written < size) {
    const ByteSpan rest = bytes.subspan(*written);
    wire.kept.insert(wire.kept.end(), rest.begin(), rest.end());
    *written = size;
  }
  if (*written == 0) BIO_set_retry_write(bio);
  return *written > 0 ? 1 : 0;
}

int BioRead(BIO* bio, char* out, std::size_t size, std::size_t* read) {
  Wire& wire = *static_cast<Wire*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const auto count = wire.inner->Read({reinterpret_cast<std::byte*>(out), size});
  *read = count.ok() ? *count : 0;
  if (!count.ok()) wire.broken = count.status();
  if (count.ok() && *count == 0) BIO_set_retry_read(bio);
  return *read > 0 ? 1 : 0;
}

long BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// A session made of the PSK, or null.
SSL_SESSION* SessionOf(SSL* ssl) {
  const Wire& wire = *static_cast<const Wire*>(SSL_get_app_data(ssl));
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher.data());
  SessionPtr session(SSL_SESSION_new());
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), wire.psk.data(), wire.psk.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

int UsePsk(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_size,
           SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *id_size = kIdentity.size();
  *session = SessionOf(ssl);
  return *session != nullptr ? 1 : 0;
}

int FindPsk(SSL* ssl, const unsigned char* id, std::size_t id_size, SSL_SESSION** session) {
  const bool ours = id_size == kIdentity.size() && std::memcmp(id, kIdentity.data(), id_size) == 0;
  *session = ours ? SessionOf(ssl) : nullptr;
  return 1;  // without a session the handshake finds nothing to authenticate with, and fails
}

Result<ContextPtr> MakeContext(TlsRole role) {
  ContextPtr context(
      SSL_CTX_new(role == TlsRole::kClient ? TLS_client_method() : TLS_server_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), kCipherName) != 1) {
    return Status(Code::kUnavailable, "this OpenSSL has no TLS 1.3 with AES-128-GCM");
  }
  // psk_dhe_ke alone is what OpenSSL does unless SSL_OP_ALLOW_NO_DHE_KEX is set.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_clear_options(context.get(), SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  (void)SSL_CTX_set_num_tickets(context.get(), 0);
  (void)SSL_CTX_set_max_early_data(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  // There is no certificate to trust: a server that shows one instead of the PSK is refused. (A
  // server that verifies would need a session id context; it has the PSK's proof instead.)
  SSL_CTX_set_verify(context.get(), role == TlsRole::kClient ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                     nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  SSL_CTX_set_psk_use_session_callback(context.get(), UsePsk);
  SSL_CTX_set_psk_find_session_callback(context.get(), FindPsk);
  return context;
}

class TlsStream final : public ByteStream {
 public:
  static Result<std::unique_ptr<TlsStream>> Create(
      std::unique_ptr<ByteStream> inner, TlsRole role, ByteSpan psk,
      std::uint64_t records_of_a_key = kTlsRecordsOfAKey);
  Status Handshake(Deadline deadline);
  // Does what can be done now; true when the handshake is done and the peer has proved the PSK.
  Result<bool> ContinueHandshake();

  Result<std::size_t> Read(MutableByteSpan out) override;
  Result<std::size_t> Write(std::span<const iovec> parts) override;
  [[nodiscard]] bool HasBufferedInput() const override { return may_hold_input_; }
  [[nodiscard]] short read_events() const override { return read_events_; }
  [[nodiscard]] short write_events() const override { return write_events_; }
  [[nodiscard]] int read_fd() const override { return wire_->inner->read_fd(); }
  [[nodiscard]] int write_fd() const override { return wire_->inner->write_fd(); }
  [[nodiscard]] bool encrypted() const override { return true; }
  [[nodiscard]] bool same_host() const override { return wire_->inner->same_host(); }
  [[nodiscard]] bool established() const override { return proved_; }
  [[nodiscard]] std::string peer() const override { return wire_->inner->peer(); }
  [[nodiscard]] bool PeerNeedsThisProcessor() const override {
    return wire_->inner->PeerNeedsThisProcessor();
  }
  void Shutdown() override;

 private:
  TlsStream() = default;
  // What a call of OpenSSL's that returned `result` means: ok to go on, or why the stream is over.
  // `events`: what to poll for before the call is made again.
  Status Outcome(int result, short& events, bool& blocked);
  void ChangeKey();
  // One record at most; 0 when the inner stream takes no more.
  Result<std::size_t> WriteRecord(std::span<const iovec> parts, std::size_t skip);

  std::unique_ptr<Wire> wire_ = std::make_unique<Wire>();
  MethodPtr method_;  // outlives the BIO in ssl_
  ContextPtr context_;
  SslPtr ssl_;
  bool proved_ = false;  // nothing is read or written before
  bool may_hold_input_ = false;
  short read_events_ = POLLIN;
  short write_events_ = POLLOUT;
  // A record that was begun is written again with the same length (SSL_write(3)).
  std::size_t begun_ = 0;
  std::uint64_t records_ = 0;  // that were written with this key
  std::uint64_t records_of_a_key_ = kTlsRecordsOfAKey;
  std::array<std::byte, kRecordBytes> gathered_;
};

Result<std::unique_ptr<TlsStream>> TlsStream::Create(std::unique_ptr<ByteStream> inner,
                                                     TlsRole role, ByteSpan psk,
                                                     std::uint64_t records_of_a_key) {
  if (psk.size() != kPskBytes) return Status(Code::kInvalidArgument, "a PSK of another length");
  std::unique_ptr<TlsStream> stream(new TlsStream());
  stream->wire_->inner = std::move(inner);
  stream->records_of_a_key_ = records_of_a_key;
  std::memcpy(stream->wire_->psk.data(), psk.data(), kPskBytes);
  RDFS_ASSIGN_OR_RETURN(stream->context_, MakeContext(role));
  stream->ssl_.reset(SSL_new(stream->context_.get()));
  stream->method_.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "rdfs byte stream"));
  BIO* bio = nullptr;
  if (stream->ssl_ != nullptr && stream->method_ != nullptr &&
      BIO_meth_set_write_ex(stream->method_.get(), BioWrite) == 1 &&
      BIO_meth_set_read_ex(stream->method_.get(), BioRead) == 1 &&
      BIO_meth_set_ctrl(stream->method_.get(), BioControl) == 1) {
    bio = BIO_new(stream->method_.get());
  }
  if (bio == nullptr) return Status(Code::kResourceExhausted, "no memory for TLS");
  BIO_set_data(bio, stream->wire_.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(stream->ssl_.get(), bio, bio);
  SSL_set_app_data(stream->ssl_.get(), stream->wire_.get());
  if (role == TlsRole::kClient) {
    SSL_set_connect_state(stream->ssl_.get());
  } else {
    SSL_set_accept_state(stream->ssl_.get());
  }
  return stream;
}

Status TlsStream::Outcome(int result, short& events, bool& blocked) {
  blocked = false;
  const int error = SSL_get_error(ssl_.get(), result);
  switch (error) {
    case SSL_ERROR_NONE:
      return {};
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      blocked = true;
      events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
      return {};
    case SSL_ERROR_ZERO_RETURN:
      return {Code::kDisconnected, "the connection to " + peer() + " was closed at its other end"};
    default:
      break;
  }
  if (!wire_->broken.ok()) return wire_->broken;
  std::array<char, 256> words{};
  ERR_error_string_n(ERR_peek_last_error(), words.data(), words.size());
  return {Code::kProtocolError, "TLS with " + peer() + " failed: " + words.data()};
}

Result<bool> TlsStream::ContinueHandshake() {
  if (proved_) return true;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  short events = 0;
  bool blocked = false;
  const Status status = Outcome(result, events, blocked);
  if (status.code() == Code::kProtocolError) {
    // With one cipher and one PSK all that can differ between two ends of ours is the PSK.
    return Status(Code::kAuthenticationFailed,
                  "the keys of the two ends differ (" + status.message() + ")");
  }
  RDFS_RETURN_IF_ERROR(status);
  if (blocked) {
    read_events_ = write_events_ = events;
    return false;
  }
  // 1 exactly when the PSK was used (SSL_session_reused(3)).
  if (SSL_session_reused(ssl_.get()) != 1) {
    return Status(Code::kAuthenticationFailed, "the other end did not prove that it has the key");
  }
  proved_ = true;
  read_events_ = POLLIN;
  write_events_ = POLLOUT;
  may_hold_input_ = SSL_has_pending(ssl_.get()) == 1;
  return true;
}

Status TlsStream::Handshake(Deadline deadline) {
  while (true) {
    RDFS_ASSIGN_OR_RETURN(const bool done, ContinueHandshake());
    if (done) return {};
    const int timeout = PollTimeoutMs(deadline, BootClock::now());
    if (timeout == 0) {
      return {Code::kDeadlineExceeded, peer() + " did not finish the TLS handshake in time"};
    }
    const bool reading = read_events_ == POLLIN;
    pollfd entry{.fd = reading ? read_fd() : write_fd(), .events = read_events_, .revents = 0};
    if (poll(&entry, 1, timeout) < 0 && errno != EINTR) return Status::FromErrno(errno, "poll");
  }
}

Result<std::size_t> TlsStream::Read(MutableByteSpan out) {
  RDFS_ASSIGN_OR_RETURN(const bool open, ContinueHandshake());
  if (!open) return std::size_t{0};
  std::size_t total = 0;
  while (total < out.size()) {
    std::size_t count = 0;
    bool blocked = false;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), out.data() + total, out.size() - total, &count);
    const Status status = Outcome(result, read_events_, blocked);
    total += count;
    if (status.ok() && !blocked) continue;
    may_hold_input_ = false;
    // What came before the end is handed out first; the end is found again by the next call.
    if (status.ok() || total > 0) {
      may_hold_input_ = !status.ok();
      return total;
    }
    return status;
  }
  // Bytes of a record that is not whole count as pending too: the next call finds that out.
  may_hold_input_ = SSL_has_pending(ssl_.get()) == 1;
  read_events_ = POLLIN;
  return total;
}

// Where no record is begun, and before one. While the message that says so is on its way, OpenSSL
// reads nothing; two ends that both wait for room with it would wait for ever. So it is as good as
// gone at once, and what is left of it goes before the record.
void TlsStream::ChangeKey() {
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return;  // before the next one
  records_ = 0;
  wire_->keeps = true;
  (void)SSL_do_handshake(ssl_.get());  // an error is the record's, too
  wire_->keeps = false;
}

Result<std::size_t> TlsStream::WriteRecord(std::span<const iovec> parts, std::size_t skip) {
  std::size_t size = 0;
  for (const iovec& part : parts) {
    if (skip >= part.iov_len) {
      skip -= part.iov_len;
      continue;
    }
    const std::size_t count = std::min(part.iov_len - skip, kRecordBytes - size);
    std::memcpy(gathered_.data() + size, static_cast<const std::byte*>(part.iov_base) + skip,
                count);
    size += count;
    skip = 0;
    if (size == kRecordBytes) break;
  }
  if (begun_ > 0) size = std::min(size, begun_);
  if (size == 0) return std::size_t{0};
  if (begun_ == 0 && records_ >= records_of_a_key_) ChangeKey();
  std::size_t written = 0;
  bool blocked = false;
  ERR_clear_error();
  const int result = SSL_write_ex(ssl_.get(), gathered_.data(), size, &written);
  RDFS_RETURN_IF_ERROR(Outcome(result, write_events_, blocked));
  begun_ = blocked ? size : 0;
  if (!blocked) ++records_;
  return blocked ? std::size_t{0} : written;
}

// Counts a record when all of it is with the inner stream, so that a short count means that
// write_fd() will tell when to go on. Until then the caller comes again with the same bytes; those
// of the record that was begun are encrypted already.
Result<std::size_t> TlsStream::Write(std::span<const iovec> parts) {
  RDFS_ASSIGN_OR_RETURN(const bool open, ContinueHandshake());
  if (!open) return std::size_t{0};
  std::size_t total = 0;
  while (true) {
    const auto count = WriteRecord(parts, total);
    if (!count.ok()) return total > 0 ? Result<std::size_t>(total) : count;
    if (*count == 0) return total;
    total += *count;
  }
}

void TlsStream::Shutdown() {
  if (SSL_is_init_finished(ssl_.get()) == 1 && wire_->broken.ok()) {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }
  wire_->inner->Shutdown();
}

}  // namespace

Result<std::unique_ptr<ByteStream>> WrapInTls(std::unique_ptr<ByteStream> inner, TlsRole role,
                                              ByteSpan psk, Deadline deadline,
                                              std::uint64_t records_of_a_key) {
  RDFS_ASSIGN_OR_RETURN(auto stream,
                        TlsStream::Create(std::move(inner), role, psk, records_of_a_key));
  RDFS_RETURN_IF_ERROR(stream->Handshake(deadline));
  return std::unique_ptr<ByteStream>(std::move(stream));
}

Result<std::unique_ptr<ByteStream>> StartTls(std::unique_ptr<ByteStream> inner, TlsRole role,
                                             ByteSpan psk) {
  RDFS_ASSIGN_OR_RETURN(auto stream, TlsStream::Create(std::move(inner), role, psk));
  return std::unique_ptr<ByteStream>(std::move(stream));
}

}  // namespace rdfs::transport::tcp
