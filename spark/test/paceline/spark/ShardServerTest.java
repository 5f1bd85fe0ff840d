package paceline.spark;

import static paceline.spark.TestCases.check;

import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** Shards that an executor keeps, without an application; LeaseTest has the program. */
final class ShardServerTest {
    private static final String HOST = "127.0.0.1";
    private static final int BYTES = 100_000;
    private static final long LATER_MS = 300;

    private ShardServerTest() {}

    private static HttpURLConnection ask(String url, String range) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection();
        if (range != null) {
            connection.setRequestProperty("Range", range);
        }
        return connection;
    }

    private static void expectStatus(int status, String url, String range) throws IOException {
        int came = ask(url, range).getResponseCode();
        check(came == status, url.split("\\?")[0] + ", " + range + ": " + came + ", and not " + status);
    }

    private static void expectPart(String url, byte[] all, int first, int last) throws IOException {
        HttpURLConnection connection = ask(url, "bytes=" + first + "-" + last);
        check(connection.getResponseCode() == 206, "status " + connection.getResponseCode());
        int end = Math.min(last + 1, all.length);
        String range = "bytes " + first + "-" + (end - 1) + "/" + all.length;
        check(range.equals(connection.getHeaderField("Content-Range")), connection.getHeaderField("Content-Range"));
        byte[] came = connection.getInputStream().readAllBytes();
        check(Arrays.equals(came, Arrays.copyOfRange(all, first, end)), "the bytes of " + range);
    }

    private static byte[] fill(Path file) throws IOException {
        byte[] bytes = new byte[BYTES];
        new Random(1).nextBytes(bytes);
        Files.write(file, bytes);
        return bytes;
    }

    static void partsAreServed() throws Exception {
        Path file = Files.createTempFile("paceline-shard-", null);
        try (ShardServer server = new ShardServer(HOST)) {
            byte[] all = fill(file);
            server.serve("a.shard", file);
            String url = server.url("a.shard");
            check(url.startsWith(server.root()), url);
            expectPart(url, all, 0, 0);
            expectPart(url, all, 10, 99);
            expectPart(url, all, BYTES - 10, BYTES + 10);
            expectStatus(416, url, "bytes=" + BYTES + "-" + (BYTES + 1));
            expectStatus(416, url, null);
            expectStatus(404, url.substring(0, url.length() - 1), "bytes=0-1");
            expectStatus(404, url.substring(0, url.indexOf('?')), "bytes=0-1");
            expectStatus(404, server.url("b.shard"), "bytes=0-1");
            expectStatus(404, server.url("../" + file.getFileName()), "bytes=0-1");
        } finally {
            Files.delete(file);
        }
    }

    /** It waits while the shard is nowhere, and goes to the server that has it. */
    static void requestIsRedirected() throws Exception {
        Path file = Files.createTempFile("paceline-shard-", null);
        try (ShardServer router = new ShardServer(HOST); ShardServer server = new ShardServer(HOST)) {
            byte[] all = fill(file);
            server.serve("b.shard", file);
            router.redirect("a.shard", "");
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(LATER_MS);
                } catch (InterruptedException never) {
                    throw new AssertionError(never);
                }
                router.redirect("a.shard", server.url("b.shard"));
            });
            later.start();
            expectPart(router.url("a.shard"), all, 5, 50);
            check(!later.isAlive(), "it did not wait");
        } finally {
            Files.delete(file);
        }
    }

    private static String identity(List<Row> rows) throws IOException {
        RecordSchema schema = new RecordSchema(RecordSchema.Source.BINARY, new int[] {1, 3, 3}, 4);
        PackedRows packed = PackedRows.forStore(schema);
        RowPacker packer = new RowPacker(schema);
        rows.forEach(row -> check(packed.add(packer, row, 0, 1) == null, "a row"));
        packed.sort();
        Path folder = Files.createTempDirectory("paceline-shards-");
        try {
            return ShardServer.identity(Path.of(Shards.write(folder.resolve("a").toString(), schema, List.of(packed))));
        } finally {
            Shards.delete(folder);
        }
    }

    /** Spark may deliver the same rows in another order when it computes a partition again. */
    static void equalRowsMakeEqualShards() throws Exception {
        Random random = new Random(2);
        List<Row> rows = IntStream.range(0, 200_000).mapToObj(i -> {
            byte[] values = new byte[9]; // a shard's blocks hold less than all
            random.nextBytes(values);
            return RowFactory.create(i % 10 == 0 ? new byte[9] : values, i % 4);
        }).collect(Collectors.toList());
        String identity = identity(rows);
        Collections.shuffle(rows, random);
        check(identity.equals(identity(rows)), "another order makes another shard");
        rows.set(7, RowFactory.create(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9}, 0));
        check(!identity.equals(identity(rows)), "another row makes the same shard");
    }
}
