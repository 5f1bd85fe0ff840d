package paceline.spark;

import java.io.IOException;
import java.nio.file.Path;

/**
 * Directs the workers of a fit to the executors that have its shards. The names of shards stay as long as the run, and
 * an executor that packs one again takes its place. The thread that fits uses it.
 */
final class ShardRouter implements AutoCloseable {
    private static final String NAME = "rows-%05d.shard";

    private final ShardServer server;
    private Ingest ingest;
    private int[] partitions; // by the number of their shard

    ShardRouter(String host) throws IOException {
        server = new ShardServer(host);
    }

    /** What the URLs of all shards begin with. */
    String root() {
        return server.root();
    }

    /** All rows are packed. Returns the URL of all shards, as a job has it. */
    String begin(Ingest packed) {
        ingest = packed;
        partitions = packed.partitionsWithRows();
        update();
        return server.url(String.format("rows-{00000..%05d}.shard", partitions.length - 1));
    }

    /** Shards are where they are now, or nowhere. */
    void update() {
        for (int i = 0; i < partitions.length; i++) {
            server.redirect(String.format(NAME, i), ingest.shard(partitions[i]));
        }
    }

    /** A file of the driver's own. Returns its URL. */
    String serve(Path file) {
        server.serve(file.getFileName().toString(), file);
        return server.url(file.getFileName().toString());
    }

    @Override
    public void close() {
        server.close();
    }
}
