/* Handles of a program on the services of its team. */
#include "api/team.h"

#include <stdlib.h>
#include <string.h>

void team_add_handle(pl_team *team, struct team_handle *handle)
{
    handle->team = team;
    atomic_flag_clear(&handle->locked);
    inbox_push(&team->handles, &handle->link);
}

void team_free_handles(pl_team *team)
{
    for (struct team_handle *handle = inbox_take(&team->handles), *next; handle; handle = next) {
        next = handle->link.next;
        free(handle);
    }
}

static void lock_error(struct team_handle *handle)
{
    while (atomic_flag_test_and_set(&handle->locked))
        ;
}

void team_handle_report(struct team_handle *handle, const struct err *err)
{
    lock_error(handle);
    handle->error = *err;
    atomic_flag_clear(&handle->locked);
}

void team_handle_error(struct team_handle *handle, char *text, size_t size)
{
    lock_error(handle);
    const struct err err = handle->error;
    atomic_flag_clear(&handle->locked);
    size_t len = strlen(err.text);
    if (size == 0)
        return;
    len = len < size ? len : size - 1;
    memcpy(text, err.text, len);
    text[len] = '\0';
}

int64_t team_deadline(const pl_team *team, double timeout_s)
{
    if (!(timeout_s >= 0 && timeout_s < 1e9))
        return WORLD_FOREVER;
    return world_now(team->world) + (int64_t)(timeout_s * (double)WORLD_SECOND);
}
