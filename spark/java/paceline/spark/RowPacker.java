package paceline.spark;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.sql.Row;

/** Writes the values of a row's features as a record of the engine, and reads its label. */
final class RowPacker {
    private final RecordSchema schema;

    RowPacker(RecordSchema schema) {
        this.schema = schema;
    }

    /** The number of values in the features of a row, which are no string; -1: the column is null. */
    static int length(RecordSchema.Source source, Row row, int column) {
        if (row.isNullAt(column)) {
            return -1;
        }
        switch (source) {
            case BINARY:
                return ((byte[]) row.get(column)).length;
            case VECTOR:
                return ((Vector) row.get(column)).size();
            default:
                return row.getList(column).size();
        }
    }

    /**
     * Write the features at the buffer's position, which moves behind them. Returns null, or what is
     * wrong with the row; the position is then anywhere in the record.
     */
    String putValues(Row row, int column, ByteBuffer out) {
        if (row.isNullAt(column)) {
            return "its features are null";
        }
        if (schema.source == RecordSchema.Source.STRING) {
            byte[] text = row.getString(column).getBytes(StandardCharsets.UTF_8);
            out.put(Arrays.copyOf(text, schema.values()));
            return null;
        }
        int length = length(schema.source, row, column);
        if (length != schema.values()) {
            return "its features have " + length + " values, and records have " + schema.values();
        }
        switch (schema.source) {
            case BINARY:
                out.put((byte[]) row.get(column));
                return null;
            case VECTOR:
                return putVector((Vector) row.get(column), out);
            default:
                return putNumbers(row.getList(column), out);
        }
    }

    private static String putVector(Vector vector, ByteBuffer out) {
        for (double value : vector.toArray()) {
            if (!Double.isFinite(value)) {
                return "a value of its features is not finite";
            }
            out.putFloat((float) value);
        }
        return null;
    }

    private static String putNumbers(List<Object> numbers, ByteBuffer out) {
        for (Object number : numbers) {
            if (number == null || !Double.isFinite(((Number) number).doubleValue())) {
                return "a value of its features is null or not finite";
            }
            out.putFloat(((Number) number).floatValue());
        }
        return null;
    }

    /** What is wrong with the label of a row; null: nothing. */
    String checkLabel(Row row, int column) {
        if (row.isNullAt(column)) {
            return "its label is null";
        }
        double label = ((Number) row.get(column)).doubleValue();
        if (label != Math.rint(label) || label < 0 || label >= schema.classes) {
            return "its label " + label + " is no class; classes are 0 to " + (schema.classes - 1);
        }
        return null;
    }

    /** The label of a row that checkLabel has passed. */
    static int label(Row row, int column) {
        return ((Number) row.get(column)).intValue();
    }
}
