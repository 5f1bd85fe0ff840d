#include "cli/driver_address.h"

#include "cli/output.h"

static char key_id[PL_KEY_ID_SIZE]; /* "": none to compare */
static const char *named_key_file;  /* NULL: none was named */

int driver_address_read(const struct command *command, const char *listen, const char *key_file,
                        struct driver_address *out)
{
    int end =
        host_address(command->name, "listen", listen, HOST_PORT, out->listen_text, &out->listen);
    named_key_file = key_file;
    out->key = NULL;
    if (end >= 0)
        return end;
    if (key_file)
        end = key_option_read(command->name, key_file, &out->key);
    else if (!out->listen || !host_address_is_far(out->listen))
        end = key_option_own(command->name, &out->key);
    if (end < 0 && key_file) /* the user's own needs no comparison */
        key_option_id(out->key, key_id);
    return end;
}

static void print_worker_command(const char *address, const char *interface)
{
    output_line("    paceline worker --join %s%s%s%s%s%s%s", address,
                named_key_file ? " --key " : "", named_key_file ? named_key_file : "",
                key_id[0] ? "   # key " : "", key_id, interface ? ", by " : "",
                interface ? interface : "");
}

void driver_address_print(void *user, const char *address)
{
    (void)user;
    output_line("waits for workers; start each so, in the folder that holds its data or with "
                "--data-root DIR:");
    if (host_address_is_any(address))
        host_address_each(address, print_worker_command);
    else
        print_worker_command(address, NULL);
}
