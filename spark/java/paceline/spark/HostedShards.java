package paceline.spark;

import java.io.File;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The shards of one fit that this executor has on its disk, and gives to workers until the fit is over. Their folder is
 * in one that the executors of an application have in common on a host: others delete it where this one is killed. Its
 * name says the application, the fit and the executor: paceline-shards.APPLICATION.FIT.EXECUTOR.
 */
final class HostedShards {
    private static final Logger LOG = LoggerFactory.getLogger(HostedShards.class);
    private static final Map<String, HostedShards> OF_FITS = new HashMap<>();

    private static final String PREFIX = "paceline-shards";

    private final Path folder;
    private final ShardServer server;

    private HostedShards(String fit, String executor) throws IOException {
        folder = Files.createDirectory(Path.of(RowsLimit.roomiest()).toAbsolutePath().resolveSibling(
                String.join(".", PREFIX, application(), fit, executor)),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        server = new ShardServer(SparkEnv.get().blockManager().blockManagerId().host());
    }

    private static String application() {
        return SparkEnv.get().conf().get("spark.app.id", "");
    }

    /** The fits of which this executor has shards, or of which killed ones have left some on this host. */
    static Set<String> fits() throws IOException {
        synchronized (OF_FITS) {
            Set<String> found = new HashSet<>(OF_FITS.keySet());
            for (Path left : folders("*")) {
                found.add(left.getFileName().toString().split("\\.")[2]);
            }
            return found;
        }
    }

    private static List<Path> folders(String fit) throws IOException {
        List<Path> found = new ArrayList<>();
        for (File local : SparkEnv.get().blockManager().diskBlockManager().localDirs()) {
            try (DirectoryStream<Path> names = Files.newDirectoryStream(local.toPath().toAbsolutePath().getParent(),
                    String.join(".", PREFIX, application(), fit, "*"))) {
                names.forEach(found::add);
            }
        }
        return found;
    }

    /** Those of a fit, for a task that packs rows. */
    static HostedShards of(String fit, String executor) throws IOException {
        synchronized (OF_FITS) {
            HostedShards found = OF_FITS.get(fit);
            if (found == null) {
                found = new HostedShards(fit, executor);
                OF_FITS.put(fit, found);
            }
            return found;
        }
    }

    /** Write a partition to a file. Returns its path. */
    Path write(int partition, RecordSchema schema, PackedRows rows) {
        return Path.of(Shards.write(folder.toString(), partition, schema, rows));
    }

    /** Give that file to who asks for it. Returns its URL. */
    String serve(Path file) {
        server.serve(file.getFileName().toString(), file);
        return server.url(file.getFileName().toString());
    }

    /** The executor ends: nothing of its files is to stay. */
    static void deleteFiles() {
        synchronized (OF_FITS) {
            OF_FITS.values().forEach(shards -> delete(shards.folder));
        }
    }

    /** The fit is over. */
    static void release(String fit) throws IOException {
        synchronized (OF_FITS) {
            HostedShards shards = OF_FITS.remove(fit);
            if (shards != null) {
                shards.server.close();
            }
            folders(fit).forEach(HostedShards::delete);
        }
    }

    private static void delete(Path folder) {
        try {
            Shards.delete(folder);
        } catch (NoSuchFileException another) {
            LOG.debug("another executor deletes {}", folder);
        } catch (IOException failed) {
            LOG.warn("shards stay: {}", failed.toString());
        }
    }
}
