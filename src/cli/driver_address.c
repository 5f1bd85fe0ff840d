#include "cli/driver_address.h"

#include "cli/output.h"

static const char *named_token_file; /* NULL: none was named */

int driver_address_read(const struct command *command, const char *listen, const char *token_file,
                        struct driver_address *out)
{
    int end =
        host_address(command->name, "listen", listen, HOST_PORT, out->listen_text, &out->listen);
    named_token_file = token_file;
    out->token = token_file ? out->token_text : NULL;
    if (end >= 0)
        return end;
    if (token_file)
        return token_read(command->name, token_file, true, out->token_text);
    return out->listen && host_address_is_far(out->listen)
               ? -1
               : token_own(command->name, out->token_text, &out->token);
}

static void print_worker_command(const char *address, const char *interface)
{
    output_line("    paceline worker --join %s%s%s%s%s%s", address,
                named_token_file ? " --token-file " : "", named_token_file ? named_token_file : "",
                host_address_is_far(address) ? " --insecure" : "", interface ? "   # by " : "",
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
