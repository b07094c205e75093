/* A new policy is in force: every open connection is judged again by its facts. */
#ifndef RELAY_REJUDGE_H
#define RELAY_REJUDGE_H

#include "relay/relay.h"

/* Closes what the policy now refuses: tunnels, exchanges, kept origins. What is being dialed is judged by its target
 * now and by its address when it connects. */
void rejudge_all(struct relay *r);

#endif
