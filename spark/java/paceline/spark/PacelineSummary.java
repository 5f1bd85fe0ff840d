package paceline.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;

/**
 * What a fit has done: the error on the validation rows, the counts of records, and the seconds of
 * each step.
 */
public final class PacelineSummary {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final ObjectNode fields;

    /** Of a run that has ended: its report, its last event, and an event for each set of records. */
    PacelineSummary(JsonNode report, JsonNode end, List<JsonNode> sets, Map<String, Double> seconds,
            long rows, long badRows, int leasesResubmitted) {
        fields = JSON.createObjectNode();
        if (report != null && report.isObject()) {
            fields.setAll((ObjectNode) report);
        }
        if (end != null && end.isObject()) {
            fields.setAll((ObjectNode) end);
        }
        fields.remove(List.of("kind", "t"));
        fields.put("rows", rows);
        fields.put("bad_rows", badRows);
        fields.put("leases_resubmitted", leasesResubmitted);
        ObjectNode steps = fields.putObject("seconds");
        seconds.forEach(steps::put);
        fields.putArray("records").addAll(sets);
    }

    PacelineSummary(String json) throws JsonProcessingException {
        fields = (ObjectNode) JSON.readTree(json);
    }

    /** All of it, as a JSON object with the keys of the run's `end` event. */
    public String json() {
        return fields.toString();
    }

    /** On the rows of validationIndicatorCol, by the final model; NaN: there are none. */
    public double testError() {
        return fields.path("test_error").asDouble(Double.NaN);
    }

    public String reason() {
        return fields.path("reason").asText();
    }

    public double epochs() {
        return fields.path("epochs").asDouble();
    }

    public long rows() {
        return fields.path("rows").asLong();
    }

    public long badRows() {
        return fields.path("bad_rows").asLong();
    }

    public long samples() {
        return fields.path("samples").asLong();
    }

    public double samplesPerSecond() {
        return fields.path("samples_per_s").asDouble(Double.NaN);
    }

    public long used() {
        return fields.path("used").asLong();
    }

    public long repeated() {
        return fields.path("repeated").asLong();
    }

    public long missed() {
        return fields.path("missed").asLong();
    }

    /** Workers at the end of the run. */
    public int workers() {
        return fields.path("workers").asInt();
    }

    /** Leases that were submitted beyond the first one of each worker. */
    public int leasesResubmitted() {
        return fields.path("leases_resubmitted").asInt();
    }

    /** Seconds of a step: executors, ingest or training; NaN: there is no such step. */
    public double seconds(String step) {
        return fields.path("seconds").path(step).asDouble(Double.NaN);
    }
}
