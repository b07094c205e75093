/* libyaml's header. Its name is that of our own yaml.h, which hides it on the include path (-Ipolicy): this file, itself
 * found through that entry of the path, goes on from there to the next file of the name. Include it in <>. */
#ifndef POLICY_LIBYAML_H
#define POLICY_LIBYAML_H

#include_next <yaml.h>

#ifndef YAML_DECLARE
#error "policy/libyaml.h must be found through -Ipolicy"
#endif

#endif
