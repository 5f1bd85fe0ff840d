#include "cli/page_view.h"

#include "cli/host_address.h"
#include "cli/key_option.h"
#include "cli/output.h"
#include "cli/page_server.h"

#include <stdio.h>
#include <string.h>

struct page_view {
    struct live_page *live; /* NULL: there is no page */
    struct page_server *server;
};

static void on_begins(void *user, const char *directory)
{
    live_page_begins(((struct page_view *)user)->live, directory);
}

static void on_event(void *user, const char *line)
{
    live_page_event(((struct page_view *)user)->live, line);
}

static void on_progress(void *user, const pl_progress *progress)
{
    live_page_progress(((struct page_view *)user)->live, progress);
}

static void on_tick(void *user)
{
    page_server_tick(((struct page_view *)user)->server);
}

/* A port alone is one of loopback. */
static int find_listen(const struct command *command, const char *page,
                       char listen[HOST_ADDRESS_MAX], const char **at)
{
    char whole[HOST_ADDRESS_MAX];
    bool port = page[strspn(page, "0123456789")] == '\0';
    snprintf(whole, sizeof whole, "%s%s", port ? "127.0.0.1:" : "", page);
    int end = host_address(command->name, "page", whole, NULL, listen, at);
    if (*at == whole) {
        snprintf(listen, HOST_ADDRESS_MAX, "%s", whole);
        *at = listen;
    }
    return end;
}

/* The token that viewers must show; NULL: none. */
static int find_token(const struct command *command, const struct run_arguments *arguments,
                      const char *listen, const char **token)
{
    *token = NULL;
    if (arguments->page_token)
        return key_option_read(command->name, arguments->page_token, token);
    return host_address_is_far(listen) ? key_option_draw(command->name, token) : -1;
}

static void print_address(const struct page_server *server, const char *listen, const char *token)
{
    char host[HOST_ADDRESS_MAX];
    const char *colon = strrchr(listen, ':');
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - listen) : 0, listen);
    if (host_address_is_any(listen))
        host_address_own(host);
    output_line("page        http://%s:%u/%s%s", host, page_server_port(server),
                token ? "?token=" : "", token ? token : "");
}

/* Serve the page, and print its address. Returns -1 to continue, or an exit code after a
 * message. */
static int start_page(const struct command *command, const struct run_arguments *arguments,
                      struct page_view *view)
{
    char listen[HOST_ADDRESS_MAX];
    const char *at, *token;
    int end = find_listen(command, arguments->page, listen, &at);
    if (end < 0)
        end = find_token(command, arguments, at, &token);
    if (end >= 0)
        return end;
    const struct page_options options = {.listen = at, .token = token};
    view->live = live_page_create();
    if (!view->live)
        fprintf(stderr, "paceline %s: --page: out of memory\n", command->name);
    view->server = view->live ? page_server_start(command->name, &options, view->live) : NULL;
    if (!view->server) {
        live_page_free(view->live);
        return EXIT_BAD_INPUT;
    }
    print_address(view->server, at, token);
    return -1;
}

int page_view_run(const struct command *command, struct run_arguments *arguments, const char *path,
                  bool drives)
{
    struct page_view view = {.live = NULL};
    const struct run_watcher watcher = {on_begins, on_event, on_progress, on_tick, &view};
    if (!arguments->page && arguments->page_token) {
        fprintf(stderr, "paceline %s: --page-token is for a page; give --page ADDR:PORT, too\n",
                command->name);
        return EXIT_BAD_INPUT;
    }
    int end = arguments->page ? start_page(command, arguments, &view) : -1;
    if (end >= 0)
        return end;
    arguments->watcher = arguments->page ? &watcher : NULL;
    int code = drives ? run_as_driver(command, arguments, path) : run_with_workers(arguments, path);
    page_server_stop(view.server);
    live_page_free(view.live);
    return code;
}
