/* test/http_server.py as a process: files of a folder over HTTP, served as the URL says. */
#ifndef PL_LIB_HTTP_SERVER_H
#define PL_LIB_HTTP_SERVER_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct http_server {
    pid_t pid;
    int stdin_fd; /* it ends when this is closed */
    int port;
};

/* Serve `folder`, over TLS with the certificate and key of that file where there is one. */
static inline void http_server_start(struct http_server *server, const char *folder,
                                     const char *certificate)
{
    int in[2], out[2];
    char line[16] = "";
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        if (dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0) {
            close(in[1]);
            close(out[0]);
            execlp("python3", "python3", TEST_ROOT "/test/http_server.py", folder,
                   certificate ? "--certificate" : NULL, certificate, NULL);
        }
        _exit(126);
    }
    close(in[0]);
    close(out[1]);
    server->stdin_fd = in[1];
    for (size_t n = 0; n + 1 < sizeof line && !strchr(line, '\n'); n++)
        if (read(out[0], line + n, 1) != 1)
            fail_msg("test/http_server.py did not start");
    close(out[0]);
    server->port = atoi(line);
    assert_true(server->port > 0);
    unsetenv("http_proxy"); /* which is for other hosts */
    unsetenv("https_proxy");
    unsetenv("all_proxy");
}

static inline void http_server_stop(struct http_server *server)
{
    close(server->stdin_fd);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

/* http://127.0.0.1:PORT/MODE/NAME */
static inline const char *http_server_url(const struct http_server *server, const char *mode,
                                          const char *name, char out[256])
{
    snprintf(out, 256, "http://127.0.0.1:%d/%s/%s", server->port, mode, name);
    return out;
}

#endif
