/* CONNECT tunnels, and what a 101 turned into one: two pumps and their ends. */
#ifndef RELAY_TUNNEL_H
#define RELAY_TUNNEL_H

#include "relay/conn.h"

/* The origin is attached; what is to go out first is in the pumps' `held`. Moves to TUNNEL. */
void tunnel_start(struct conn *c);
void tunnel_run(struct conn *c);
/* Ends a tunnel that the guard itself cuts: before TLS has begun on port 443 the client gets an alert that says so. */
void tunnel_cut(struct conn *c, enum close_why why);

#endif
