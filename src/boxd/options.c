/* SPDX-License-Identifier: MIT
 * options.c: see options.h. */
#include "boxd/options.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include "boxd/table.h"

const char cb_options_help[] =
    "usage: crewboxd --state DIR [options]\n"
    "\n"
    "Serves isolated boxes on this machine in E2B's own protocol. Prints \"ready ADDRESS\" once\n"
    "it serves. Boxes go on when it ends; the next crewboxd of the same DIR takes them up.\n"
    "\n"
    "  --state DIR          where everything is kept (made if missing); one daemon a folder\n"
    "  --socket PATH        serve on this unix socket (default: DIR/api.sock without --listen)\n"
    "  --listen HOST:PORT   serve on TCP; port 0 takes a free one. Clients send the content of\n"
    "                       DIR/key as X-API-Key\n"
    "  --listen-any         let --listen use an address others can reach\n"
    "  --init FILE          the crewbox-init to put into boxes (default: beside this program,\n"
    "                       then ../libexec/crewbox)\n"
    "  --log FILE           write the log there; - is standard error (default)\n"
    "  --max-boxes N        refuse more boxes at a time (default 200)\n"
    "  --verbose            log more\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 stopped by a signal, 1 failed, 2 usage, 3 another daemon holds DIR.\n";

enum { STATE = 1000, SOCKET, LISTEN, LISTEN_ANY, INIT, LOG, MAX_BOXES, VERBOSE, HELP, PROGRAM };

int cb_options_read(struct cb_options *o, int argc, char **argv, struct cb_err *err)
{
  static const struct option known[] = {
    { "state", required_argument, NULL, STATE },
    { "socket", required_argument, NULL, SOCKET },
    { "listen", required_argument, NULL, LISTEN },
    { "listen-any", no_argument, NULL, LISTEN_ANY },
    { "init", required_argument, NULL, INIT },
    { "log", required_argument, NULL, LOG },
    { "max-boxes", required_argument, NULL, MAX_BOXES },
    { "verbose", no_argument, NULL, VERBOSE },
    { "help", no_argument, NULL, HELP },
    { "version", no_argument, NULL, PROGRAM },
    { NULL, 0, NULL, 0 },
  };
  memset(o, 0, sizeof *o);
  o->max_boxes = CB_BOXES_MAX;
  opterr = 0;
  int c;
  char *end;
  while ((c = getopt_long(argc, argv, ":", known, NULL)) != -1) {
    switch (c) {
    case STATE:
      o->state = optarg;
      break;
    case SOCKET:
      o->socket = optarg;
      break;
    case LISTEN:
      o->listen = optarg;
      break;
    case LISTEN_ANY:
      o->listen_any = true;
      break;
    case INIT:
      o->init = optarg;
      break;
    case LOG:
      o->log = optarg;
      break;
    case MAX_BOXES:
      o->max_boxes = strtol(optarg, &end, 10);
      if (*end || o->max_boxes < 1 || o->max_boxes > 100000)
        return cb_err_set(err, CB_INVALID, "--max-boxes: %s is not a number from 1", optarg);
      break;
    case VERBOSE:
      o->verbose = true;
      break;
    case HELP:
      o->help = true;
      break;
    case PROGRAM:
      o->version = true;
      break;
    case ':':
      return cb_err_set(err, CB_INVALID, "%s needs a value", argv[optind - 1]);
    default:
      return cb_err_set(err, CB_INVALID, "unknown option %s (--help lists them)",
                        argv[optind - 1]);
    }
  }
  if (optind < argc)
    return cb_err_set(err, CB_INVALID, "unexpected argument %s", argv[optind]);
  if (!o->help && !o->version && (!o->state || !*o->state))
    return cb_err_set(err, CB_INVALID, "--state DIR is missing");
  return CB_OK;
}
