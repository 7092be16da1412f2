// What each operation of rdfs.h does, as calls of a lane. Every function begins one and returns;
// rdfs_queue::End is called once, later. Under the queue's mutex.
#pragma once

#include <string>

#include "fs/library/queue.h"

namespace rdfs::fs::library {

void StartOpen(rdfs_queue& queue, const OperationPtr& operation, const std::string& path, int flags,
               std::uint32_t mode);
void StartClose(rdfs_queue& queue, const OperationPtr& operation, rdfs_file* file);

using Memory = std::shared_ptr<client::Buffer>;
struct Transfer {
  Memory memory;
  std::size_t at = 0, length = 0;  // in the memory; at most kMaxTransferBytes
  std::uint64_t offset = 0;        // in the file
};
void StartRead(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
               const Transfer& transfer);
void StartWrite(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                const Transfer& transfer);
void StartFsync(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file, bool data_only);
void StartTruncate(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                   std::uint64_t size);

void StartFstat(rdfs_queue& queue, const OperationPtr& operation, rdfs_file& file,
                rdfs_attributes* out);
void StartStat(rdfs_queue& queue, const OperationPtr& operation, const std::string& path,
               bool follow, rdfs_attributes* out);
void StartList(rdfs_queue& queue, const OperationPtr& operation, const std::string& path);
void StartMkdir(rdfs_queue& queue, const OperationPtr& operation, const std::string& path,
                std::uint32_t mode);
void StartUnlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& path);
void StartRmdir(rdfs_queue& queue, const OperationPtr& operation, const std::string& path);
void StartRename(rdfs_queue& queue, const OperationPtr& operation, const std::string& from,
                 const std::string& to, std::uint32_t flags);
void StartSymlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& target,
                  const std::string& path);
void StartReadlink(rdfs_queue& queue, const OperationPtr& operation, const std::string& path);

}  // namespace rdfs::fs::library
