/* SPDX-License-Identifier: MIT
 * protocol.h: what crewboxd and crewbox-init must agree on beyond interfaces.md section 7: how
 * the init is started, the default environment, limits. Constants only; both sides include it.
 *
 * Start: `crewbox-init box` with these descriptors and an empty environment.
 *   3  configuration: a record sequence, read to its end (below)
 *   4  report: a SOCK_SEQPACKET; one message, then the outer process ends:
 *      f=ready, pid (host's view); descriptor: a pidfd of pid 1      or
 *      f=failed, step, errno, code (an error code by name), text
 *   5  filter of box root, 6 filter of box users: raw sock_filter arrays
 *   7  shared lock of the base layer, kept open by pid 1
 *
 * Configuration: crewbox_box=1, id, uid, gid (host ids of the box), dir (absolute: its folder),
 * base (absolute: the base layer), network none|allowlist, allow*, forward* ("PORT HOST:PORT"),
 * mount* (nested: source, target), path*, env*, expires_boot_ms, check 0|1 (prove the isolation
 * instead of serving: then the report comes when the proof is over and nothing stays).
 *
 * Box folder: init.sock, init.lock (flock held while the box lives), up/ and work/ (overlays),
 * home/, root/, var/; the last five belong to the box's id. */
#ifndef CB_BOX_PROTOCOL_H
#define CB_BOX_PROTOCOL_H

enum {
  CB_BOX_VERSION = 1,
  CB_BOX_FD_CONFIG = 3,
  CB_BOX_FD_REPORT = 4,
  CB_BOX_FD_ROOT_FILTER = 5,
  CB_BOX_FD_USER_FILTER = 6,
  CB_BOX_FD_BASE_LOCK = 7,

  CB_BOX_CONFIG_MAX = 1 << 20,
  CB_BOX_FRAME_MAX = 128 * 1024,
  CB_BOX_QUEUE_MAX = 16 << 20,   /* bytes of answers and events waiting for a slow daemon */
  CB_BOX_PROCS_MAX = 1024,       /* started processes, exited ones included while they are kept */
  CB_BOX_KEEP_EXITED_MS = 30000,
  CB_BOX_ENTRIES_MAX = 20000,    /* of one list_dir */
  CB_BOX_DEPTH_MAX = 64,
  CB_BOX_RULES_MAX = 1024,
  CB_BOX_MOUNTS_MAX = 256,

  CB_BOX_USER_UID = 1000, /* `user` inside */
};

#define CB_BOX_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define CB_BOX_SUDO_SOCKET "/run/crewbox/sudo.sock"
#endif
