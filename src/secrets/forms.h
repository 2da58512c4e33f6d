/* SPDX-License-Identifier: MIT
 * forms.h: the written forms of one value, and how to recognise them. A form is a decoder: a
 * text matches when decoding it gives the value, so every mixture of escaped and plain bytes a
 * printer may choose is one form. Pure, no allocation. Used by match.c alone.
 *
 * Finding where to try a form is the matcher's job: cb_form_keys lists the first 8 bytes of
 * every rendering a form can begin with. */
#ifndef CB_SECRETS_FORMS_H
#define CB_SECRETS_FORMS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CB_FORM_KEY = 8 }; /* bytes of a key; no rendering of a value is shorter */

enum cb_form {
  CB_FORM_RAW,
  CB_FORM_PERCENT,
  CB_FORM_JSON,      /* inside a JSON string */
  CB_FORM_JSON2,     /* inside a JSON string that is inside a JSON string */
  CB_FORM_SQUOTE,    /* '..'\''..' and '..'"'"'..' */
  CB_FORM_BACKSLASH, /* "..\$.." and bare words with backslashes */
  CB_FORM_ANSI,      /* $'..\n..' */
  CB_FORM_JSON_SQUOTE, /* the three shell forms inside a JSON string */
  CB_FORM_JSON_BACKSLASH,
  CB_FORM_JSON_ANSI,
  CB_FORM_UTF16, /* little-endian */
  /* Two forms that tools wrap. A line break is looked for behind the first 4 characters only:
   * else every line that ends in the first character of a value would have to wait for the
   * next one. So that a value is found that has its break before that, there are these forms
   * without their first characters, too. */
  CB_FORM_HEX,
  CB_FORM_HEX_REST,
  CB_FORM_BASE64, /* + phase (the value begins 0, 1 or 2 bytes into a group) + 3 * left out */
  CB_FORM_BASE64_END = CB_FORM_BASE64 + 12,
  CB_FORM_COUNT = CB_FORM_BASE64_END
};

enum { CB_FORM_WRAP_LEAST = 4 };

/* Calls fn for each possible first CB_FORM_KEY bytes of value in that form, letters in any
 * case (a key stands for all cases of itself). Stops and returns what fn returns when that is
 * not 0. A form that writes this value exactly as another form does has no keys. */
int cb_form_keys(enum cb_form form, const uint8_t *value, size_t len,
                 int (*fn)(void *arg, const uint8_t key[CB_FORM_KEY]), void *arg);

/* The key of the UTF-16 form; false when value does not begin as UTF-8. */
bool cb_form_utf16_key(const uint8_t *value, size_t len, uint8_t key[CB_FORM_KEY]);

struct cb_form_result {
  size_t end; /* where the longest match ends, 0 when there is none */
  bool live;  /* with more text behind it, there could be a match or a longer one */
};

/* Does value stand in that form at text + at? */
struct cb_form_result cb_form_match(enum cb_form form, const uint8_t *value, size_t len,
                                    const uint8_t *text, size_t text_len, size_t at);
#endif
