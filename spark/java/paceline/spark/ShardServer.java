package paceline.spark;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives shards to workers by HTTP, as the library reads URLs: by ranges. A shard is a file here, or at another server,
 * to which a request is redirected. A URL ends with the server's token, without which there is no answer.
 */
final class ShardServer implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(ShardServer.class);
    /** A request for a shard that is nowhere waits so long for it. The library asks again, for two minutes in all. */
    private static final long WAIT_MS = 10_000;
    private static final int IDENTITY_BYTES = 8; // at the end of a shard: the checksum of its contents
    private static final Pattern RANGE = Pattern.compile("bytes=(\\d{1,18})-(\\d{1,18})");
    private static final String NO_DELAY = "sun.net.httpserver.nodelay";

    private static final int OK_PART = 206;
    private static final int REDIRECT = 307;
    private static final int NOT_FOUND = 404;
    private static final int NO_RANGE = 416;
    private static final int UNAVAILABLE = 503;

    private final HttpServer server;
    private final ExecutorService threads;
    private final String root;
    private final String token = Fit.newKey();
    private final Map<String, Path> files = new ConcurrentHashMap<>();
    private final Map<String, String> elsewhere = new ConcurrentHashMap<>(); // URLs; empty: it is nowhere now

    /** It listens at that address of this machine. */
    ShardServer(String host) throws IOException {
        if (System.getProperty(NO_DELAY) == null) {
            System.setProperty(NO_DELAY, "true"); // or an answer's body waits 40 ms for the receipt of its headers
        }
        server = HttpServer.create(new InetSocketAddress(host, 0), 0);
        root = "http://" + host + ":" + server.getAddress().getPort() + "/";
        threads = Executors.newCachedThreadPool(body -> {
            Thread thread = new Thread(body, "paceline-shards");
            thread.setDaemon(true);
            return thread;
        });
        server.setExecutor(threads);
        server.createContext("/", this::answer);
        server.start();
    }

    /** What all its URLs begin with. */
    String root() {
        return root;
    }

    String url(String name) {
        return root + name + "?" + token;
    }

    void serve(String name, Path file) {
        files.put(name, file);
    }

    /** That shard is at `url`; empty: it is nowhere, and requests wait. */
    void redirect(String name, String url) {
        if (!url.equals(elsewhere.put(name, url))) {
            synchronized (elsewhere) {
                elsewhere.notifyAll();
            }
        }
    }

    /** Shards with equal contents have the same. */
    static String identity(Path file) throws IOException {
        ByteBuffer end = ByteBuffer.allocate(IDENTITY_BYTES);
        try (FileChannel channel = FileChannel.open(file)) {
            channel.read(end, channel.size() - IDENTITY_BYTES);
        }
        return HexFormat.of().formatHex(end.array());
    }

    // ---- requests

    private void answer(HttpExchange exchange) {
        try (exchange) {
            String name = exchange.getRequestURI().getPath().substring(1);
            Path file = files.get(name);
            if (!isTrusted(exchange.getRequestURI().getRawQuery())) {
                exchange.sendResponseHeaders(NOT_FOUND, -1);
            } else if (file != null) {
                sendPart(exchange, file);
            } else {
                direct(exchange, name);
            }
        } catch (IOException gone) {
            LOG.debug("a request for a shard has ended early: {}", gone.toString());
        } catch (InterruptedException over) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean isTrusted(String query) {
        return query != null && MessageDigest.isEqual(query.getBytes(StandardCharsets.UTF_8),
                token.getBytes(StandardCharsets.UTF_8));
    }

    private void direct(HttpExchange exchange, String name) throws IOException, InterruptedException {
        String url = place(name);
        if (url != null && !url.isEmpty()) {
            exchange.getResponseHeaders().set("Location", url);
        }
        exchange.sendResponseHeaders(url == null ? NOT_FOUND : url.isEmpty() ? UNAVAILABLE : REDIRECT, -1);
    }

    /** Where that shard is; null: there is none of that name; empty: it has not come in time. */
    private String place(String name) throws InterruptedException {
        long until = System.nanoTime() + WAIT_MS * 1_000_000;
        synchronized (elsewhere) {
            for (;;) {
                String url = elsewhere.get(name);
                long leftMs = (until - System.nanoTime()) / 1_000_000;
                if (url == null || !url.isEmpty() || leftMs <= 0) {
                    return url;
                }
                elsewhere.wait(leftMs);
            }
        }
    }

    private static void sendPart(HttpExchange exchange, Path file) throws IOException {
        Matcher range = RANGE.matcher(String.valueOf(exchange.getRequestHeaders().getFirst("Range")));
        try (FileChannel channel = FileChannel.open(file)) {
            long first = range.matches() ? Long.parseLong(range.group(1)) : channel.size();
            long last = range.matches() ? Math.min(Long.parseLong(range.group(2)), channel.size() - 1) : 0;
            if (first > last) {
                exchange.sendResponseHeaders(NO_RANGE, -1);
                return;
            }
            exchange.getResponseHeaders().set("Content-Range", "bytes " + first + "-" + last + "/" + channel.size());
            exchange.getResponseHeaders().set("ETag", '"' + identity(file) + '"');
            exchange.sendResponseHeaders(OK_PART, last - first + 1);
            try (OutputStream body = exchange.getResponseBody()) {
                channel.transferTo(first, last - first + 1, Channels.newChannel(body));
            }
        }
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }
}
