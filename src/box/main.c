/* SPDX-License-Identifier: MIT
 * main.c: crewbox-init. `crewbox-init box` is started by crewboxd (protocol.h); under the name
 * `sudo` it is the sudo of a box (sudo.h). */
#include <stdio.h>
#include <string.h>

#include "box/outer.h"
#include "box/sudo.h"

int main(int argc, char **argv)
{
  const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
  const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
  if (strcmp(name, "sudo") == 0)
    return cb_sudo_main(argc, argv);
  if (argc == 2 && strcmp(argv[1], "box") == 0)
    return cb_outer_run();
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    puts("crewbox-init " CB_VERSION);
    return 0;
  }
  fputs("crewbox-init is started by crewboxd; it is not a command for people\n", stderr);
  return 2;
}
