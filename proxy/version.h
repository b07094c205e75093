/* The version of the guard, in one place. */
#ifndef PROXY_VERSION_H
#define PROXY_VERSION_H

#define GUARD_VERSION "0.1.0"

#endif
