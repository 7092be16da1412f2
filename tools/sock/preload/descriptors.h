// close(2) as programs see it. Any thread, also in a signal handler.
#pragma once

namespace rdfs::sock {

int CloseForProgram(int fd);

}  // namespace rdfs::sock
