package paceline.spark;

import java.io.Serializable;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StructType;

/** What a record is: the type of its column, its shape, and the number of classes. */
final class RecordSchema implements Serializable {
    private static final long serialVersionUID = 1;

    /** How a row holds the values of a record. */
    enum Source {
        BINARY,
        STRING, // its first bytes in UTF-8, with zeros behind a shorter one
        VECTOR,
        ARRAY
    }

    final Source source;
    final int channels;
    final int height;
    final int width;
    final int classes;

    RecordSchema(Source source, int[] shape, int classes) {
        this.source = source;
        channels = shape[0];
        height = shape[1];
        width = shape[2];
        this.classes = classes;
    }

    /** Source, shape and classes as text, and back. */
    String text() {
        return source + " " + channels + " " + height + " " + width + " " + classes;
    }

    static RecordSchema of(String text) {
        String[] word = text.trim().split(" ");
        return new RecordSchema(Source.valueOf(word[0]), new int[] {Integer.parseInt(word[1]),
                Integer.parseInt(word[2]), Integer.parseInt(word[3])}, Integer.parseInt(word[4]));
    }

    int values() {
        return channels * height * width;
    }

    boolean holdsBytes() {
        return source == Source.BINARY || source == Source.STRING;
    }

    int type() {
        return holdsBytes() ? Native.U8 : Native.F32;
    }

    int bytes() {
        return holdsBytes() ? values() : values() * Float.BYTES;
    }

    /** The source of a column, or an error that names the column and the types that there may be. */
    static Source sourceOf(StructType schema, String column) {
        DataType type = typeOf(schema, column, "featuresCol");
        if (type.equals(DataTypes.BinaryType)) {
            return Source.BINARY;
        }
        if (type.equals(DataTypes.StringType)) {
            return Source.STRING;
        }
        if (type.equals(SQLDataTypes.VectorType())) {
            return Source.VECTOR;
        }
        if (type instanceof ArrayType && ((ArrayType) type).elementType() instanceof NumericType) {
            return Source.ARRAY;
        }
        throw new PacelineException("featuresCol '" + column + "' is " + type.simpleString()
                + "; it must be binary, a string, a vector of Spark ML, or an array of numbers");
    }

    /** Refuse a label column whose values are no numbers. */
    static void checkLabel(StructType schema, String column) {
        DataType type = typeOf(schema, column, "labelCol");
        if (!(type instanceof NumericType)) {
            throw new PacelineException("labelCol '" + column + "' is " + type.simpleString()
                    + "; it must be a number from 0 to classes - 1: apply a StringIndexer first");
        }
    }

    static void checkIndicator(StructType schema, String column) {
        DataType type = typeOf(schema, column, "validationIndicatorCol");
        if (!type.equals(DataTypes.BooleanType)) {
            throw new PacelineException("validationIndicatorCol '" + column + "' is "
                    + type.simpleString() + "; it must be boolean");
        }
    }

    private static DataType typeOf(StructType schema, String column, String param) {
        scala.Option<Object> index = schema.getFieldIndex(column);
        if (index.isEmpty()) {
            throw new PacelineException(param + " '" + column + "' is no column; the columns are "
                    + String.join(", ", schema.fieldNames()));
        }
        return schema.fields()[(Integer) index.get()].dataType();
    }

    /**
     * The shape of a record of so many values where the user gives none: a square picture of one or
     * three channels where the number allows it, else a vector.
     */
    static int[] guessShape(int values) {
        for (int channels = 1; channels <= 3; channels += 2) {
            int side = (int) Math.round(Math.sqrt((double) values / channels));
            if (side > 0 && channels * side * side == values) {
                return new int[] {channels, side, side};
            }
        }
        return new int[] {values, 1, 1};
    }
}
