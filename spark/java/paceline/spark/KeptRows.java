package paceline.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The files of rows that outlive their executor, in the folders that the executors of an application have in common on
 * a host. A name says the application, the fit and the executor: paceline-rows.APPLICATION.FIT.EXECUTOR.NUMBER.
 */
final class KeptRows {
    static final String SETTING = "spark.paceline.keepRows";
    static final KeptRows NONE = new KeptRows(List.of(), "", "");

    private static final Logger LOG = LoggerFactory.getLogger(KeptRows.class);
    private static final String PREFIX = "paceline-rows";
    private static final String DRIVER = "driver"; // where Spark has no executors

    /** One of them. */
    static final class Kept {
        final Path path;
        final String fit;
        final String executor;

        private Kept(Path path, String fit, String executor) {
            this.path = path;
            this.fit = fit;
            this.executor = executor;
        }
    }

    private final List<Path> folders;
    private final String application;
    private final String executor;

    KeptRows(List<Path> folders, String application, String executor) {
        this.folders = folders;
        this.application = application;
        this.executor = executor;
    }

    /** Of this executor: Spark's local folders of one are in those of its application. */
    static KeptRows ofExecutor(SparkConf conf, String executor) {
        boolean keeps = conf.getBoolean(SETTING, true) && !executor.equals(DRIVER);
        return new KeptRows(keeps ? Arrays.stream(SparkEnv.get().blockManager().diskBlockManager().localDirs())
                .map(folder -> folder.getAbsoluteFile().getParentFile().toPath()).distinct()
                .collect(Collectors.toList()) : List.of(), conf.get("spark.app.id", ""), executor);
    }

    /** By this the library knows the rows of a fit. */
    static long identity(String fit) {
        return UUID.nameUUIDFromBytes(fit.getBytes(StandardCharsets.UTF_8)).getMostSignificantBits();
    }

    /** The path of a new file of this executor, where there is the most room; null: none is kept. */
    Path newFile(String fit) {
        return folders.stream().max(Comparator.comparingLong(folder -> folder.toFile().getUsableSpace()))
                .map(folder -> folder.resolve(name(fit))).orElse(null);
    }

    private String name(String fit) {
        return String.join(".", PREFIX, application, fit, executor,
                Long.toHexString(UUID.randomUUID().getLeastSignificantBits()));
    }

    /** The files of the application. */
    List<Kept> list() {
        List<Kept> found = new ArrayList<>();
        for (Path folder : folders) {
            try (DirectoryStream<Path> names = Files.newDirectoryStream(folder, PREFIX + "." + application + ".*")) {
                for (Path path : names) {
                    String[] part = path.getFileName().toString().split("\\.");
                    if (part.length == 5) {
                        found.add(new Kept(path, part[2], part[3]));
                    }
                }
            } catch (IOException gone) {
                LOG.debug("no rows are looked for in {}: {}", folder, gone.toString());
            }
        }
        return found;
    }

    /** A file whose parts this executor has got is its own; returns its new path. */
    Path take(Kept kept) {
        Path own = kept.path.resolveSibling(name(kept.fit));
        try {
            return Files.move(kept.path, own);
        } catch (IOException failed) {
            LOG.warn("{} keeps its name: {}", kept.path, failed.toString());
            return kept.path;
        }
    }

    /** A process that reads it continues to do so. */
    static void delete(Path path) {
        try {
            Files.deleteIfExists(path);
        } catch (IOException failed) {
            LOG.warn("a file of rows stays: {}", failed.toString());
        }
    }
}
