/* Which of the only two ports there are. The zero value holds none. */
#ifndef POLICY_PORTSET_H
#define POLICY_PORTSET_H

#include <stdbool.h>
#include <stdint.h>

struct portset {
	uint8_t bits; /* 1: port 80, 2: port 443 */
};

static inline struct portset portset_all(void)
{
	return (struct portset){3};
}

/* The bit of a port; 0 for every port that no policy can open. */
static inline uint8_t portset_bit(uint16_t port)
{
	return port == 80 ? 1 : port == 443 ? 2 : 0;
}

static inline bool portset_has(struct portset s, uint16_t port)
{
	return (s.bits & portset_bit(port)) != 0;
}

#endif
