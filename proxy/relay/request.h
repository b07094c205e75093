/* From a request head to a decision: HEAD and DIALING. */
#ifndef RELAY_REQUEST_H
#define RELAY_REQUEST_H

#include "relay/conn.h"

/* HEAD: reads until a head is whole, then judges it and dials, reuses the origin or refuses. */
void request_run(struct conn *c);
/* DIALING: keeps what the client sends meanwhile, bounded. */
void request_wait(struct conn *c);
/* DIALING: the client is gone before there was an answer. */
void request_given_up(struct conn *c);
/* Refuses what could not be read as a request at all (also after HEAD timed out). */
void request_unreadable(struct conn *c, enum verdict v, const char *why);
/* Dials the target of c->req; on failure refuses. Called again when a kept origin turned out to be dead. */
void request_dial(struct conn *c);

#endif
