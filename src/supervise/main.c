/* SPDX-License-Identifier: MIT
 * main.c: crewbox-supervise, the program that parents every run inside every box. Reads its
 * arguments and hands over. Exit status: 0 done, 1 failed with one line on stderr, 2 usage,
 * 3 refused: this launch was started before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "supervise/apply.h"
#include "supervise/collect.h"
#include "supervise/run.h"
#include "wire/manifest.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_REFUSED = 3, REPORT_BYTES = 4 << 20 };

static const char usage[] =
    "usage: crewbox-supervise run ORDERS\n"
    "       crewbox-supervise tree-apply --project DIR --pack FILE --run-dir DIR [--base-commit]\n"
    "       crewbox-supervise tree-collect --project DIR --run-dir DIR --out FILE [--max BYTES]\n"
    "       crewbox-supervise version | --help\n";

static const char help[] =
    "\n"
    "Parents one run inside a box and moves trees in and out of it.\n"
    "\n"
    "  run           takes the orders file (it is removed), starts the agent in a session of its\n"
    "                own and keeps state and output in the run folder until nothing of it is left\n"
    "  tree-apply    makes DIR hold what the pack says and reads it back; --base-commit makes it\n"
    "                a git repository of one commit\n"
    "  tree-collect  packs what differs from what was applied (at most 104857600 BYTES)\n"
    "\n"
    "Exit status: 0 done, 1 failed (one line on stderr), 2 usage, 3 this launch was started\n"
    "before.\n";

static int bad_usage(const char *what, const char *name)
{
  fprintf(stderr, "crewbox-supervise: %s%s\n%s", what, name, usage);
  return EXIT_USAGE;
}

static int finish(int rc, const struct cb_err *err)
{
  if (rc == CB_OK)
    return 0;
  fprintf(stderr, "crewbox-supervise: %s: %s\n", cb_code_name((enum cb_code)rc), err->text);
  return EXIT_FAILED;
}

static int print_report(const struct cb_buf *report, struct cb_err *err)
{
  return cb_write_full(STDOUT_FILENO, report->p, report->len, err);
}

/* Options of a verb: each with a value, except flags (flag set, value NULL). */
struct option {
  const char *name;
  const char **value;
  bool *flag;
};

static int take_options(int argc, char **argv, const struct option *options, size_t count)
{
  for (int i = 0; i < argc; i++) {
    size_t k = 0;
    while (k < count && strcmp(argv[i], options[k].name) != 0)
      k++;
    if (k == count)
      return bad_usage("unknown argument ", argv[i]);
    if (options[k].flag) {
      *options[k].flag = true;
      continue;
    }
    if (i + 1 == argc || argv[i + 1][0] == '\0')
      return bad_usage("a value is missing for ", argv[i]);
    *options[k].value = argv[++i];
  }
  return 0;
}

static int run(int argc, char **argv)
{
  struct cb_err err = CB_ERR_INIT;
  if (argc != 1)
    return bad_usage("run takes one argument, the orders file", "");
  int rc = cb_sup_run(argv[0], &err);
  int status = finish(rc, &err);
  return rc == CB_BUSY || rc == CB_EXISTS ? EXIT_REFUSED : status;
}

static int tree_apply(int argc, char **argv)
{
  struct cb_sup_apply what = { NULL, NULL, NULL, false };
  const struct option options[] = { { "--project", &what.project, NULL },
                                    { "--pack", &what.pack, NULL },
                                    { "--run-dir", &what.run_dir, NULL },
                                    { "--base-commit", NULL, &what.base_commit } };
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf report;
  int status = take_options(argc, argv, options, sizeof options / sizeof *options);
  if (status)
    return status;
  if (!what.project || !what.pack || !what.run_dir)
    return bad_usage("tree-apply needs --project, --pack and --run-dir", "");
  cb_buf_init(&report, REPORT_BYTES);
  int rc = cb_sup_apply(&what, &report, &err);
  if (!rc)
    rc = print_report(&report, &err);
  cb_buf_clear(&report);
  return finish(rc, &err);
}

static int tree_collect(int argc, char **argv)
{
  struct cb_sup_collect what = { NULL, NULL, NULL, CB_TREE_MAX_BYTES };
  const char *max = NULL;
  const struct option options[] = { { "--project", &what.project, NULL },
                                    { "--run-dir", &what.run_dir, NULL },
                                    { "--out", &what.out, NULL },
                                    { "--max", &max, NULL } };
  struct cb_err err = CB_ERR_INIT;
  struct cb_buf report;
  int status = take_options(argc, argv, options, sizeof options / sizeof *options);
  if (status)
    return status;
  if (!what.project || !what.run_dir || !what.out)
    return bad_usage("tree-collect needs --project, --run-dir and --out", "");
  if (max) {
    if (strlen(max) > 18 || strspn(max, "0123456789") != strlen(max))
      return bad_usage("--max wants a number of bytes, not ", max);
    what.max_bytes = strtoull(max, NULL, 10);
  }
  cb_buf_init(&report, REPORT_BYTES);
  int rc = cb_sup_collect(&what, &report, &err);
  if (!rc)
    rc = print_report(&report, &err);
  cb_buf_clear(&report);
  return finish(rc, &err);
}

int main(int argc, char **argv)
{
  static const struct {
    const char *name;
    int (*verb)(int argc, char **argv);
  } verbs[] = { { "run", run }, { "tree-apply", tree_apply }, { "tree-collect", tree_collect } };

  if (argc < 2)
    return bad_usage("what to do is missing", "");
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (strcmp(argv[1], verbs[i].name) == 0)
      return verbs[i].verb(argc - 2, argv + 2);
  }
  if (argc == 2 && (strcmp(argv[1], "version") == 0 || strcmp(argv[1], "--version") == 0)) {
    puts(CB_VERSION);
    return 0;
  }
  if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
    fputs(usage, stdout);
    fputs(help, stdout);
    return 0;
  }
  return bad_usage("unknown argument ", argv[1]);
}
