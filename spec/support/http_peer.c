/* SPDX-License-Identifier: MIT
 * http_peer.c: the server of http_peer.h as a program, for the Lua specs, which compile it.
 * http_peer [SOCKET]: prints its port (or the socket) and serves until it is killed. */
#include "http_peer.h"

int main(int argc, char **argv)
{
  int port = 0, fd = peer_listen(argc > 1 ? argv[1] : NULL, argc > 1 ? NULL : &port);
  if (fd < 0)
    return 1;
  if (argc > 1)
    printf("%s\n", argv[1]);
  else
    printf("%d\n", port);
  fflush(stdout);
  peer_serve(fd);
}
