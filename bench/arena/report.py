"""Tables and plots of the arena's results."""
import html
import json
import math
import statistics

VOID_EXCHANGES = 50  # a time with fewer says nothing of a strategy

COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#00798c", "#7b2d8b", "#2e933c", "#8d5524", "#5c5c5c",
           "#e07a5f", "#3d405b", "#81b29a", "#b5179e", "#4361ee", "#606c38", "#000", "#a44a3f"]


def finite(value):
    """Infinity and NaN, which JSON does not have, become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def result_of(runs, targets):
    """A competitor's result over its seeds: times to each target, by its name."""
    medians, tests = zip(*(r.until_target() for r in runs))
    times = {k: [r.passed(t) for r in runs] for k, t in targets.items()}
    return {"competitor": runs[0].name, "settings": runs[0].settings, "seeds": [r.seed for r in runs],
            "times": times, "medians": {k: statistics.median(t) for k, t in times.items()},
            "lowest": min((e for curve in medians for _, e in curve), default=1.0),
            "test": statistics.median(min((e for _, e in some), default=1.0) for some in tests),
            "exchanges": min(r.read()[2] for r in runs)}


def is_void(result):
    return result["competitor"] != "single" and result["exchanges"] < VOID_EXCHANGES


def seconds(times):
    return ", ".join("–" if t == math.inf else f"{t:.1f}" for t in times)


def table(cell, targets, results):
    """In the order of the time to the first target. A time is in virtual seconds, a seed each; the
    ratio is of the best competitor's median to this one's."""
    first = next(iter(targets))
    fair = [r["medians"] for r in results if r["competitor"] != "single" and not is_void(r)]
    best = {k: min((m[k] for m in fair), default=math.inf) for k in targets}
    heads = [f"s to {100 * t:.2f} % ({k})" for k, t in targets.items()]
    lines = [f"**{cell.name}**", "",
             "| competitor | with | " + " | ".join(f"{h} | best / this" for h in heads) +
             " | lowest test error, % | exchanges |", "|---" * (4 + 2 * len(heads)) + "|"]
    for r in sorted(results, key=lambda r: (r["medians"][first], r["lowest"])):
        cells = []
        for k in targets:
            reached = r["medians"][k] < math.inf
            cells += [seconds(r["times"][k]), f"{best[k] / r['medians'][k]:.2f}" if reached else "–"]
        some = " ".join(f"{k.split('.')[-1]}={v}" for k, v in r["settings"].items()) or "defaults"
        lines.append(f"| {r['competitor']} | {some} | " + " | ".join(cells) +
                     f" | {100 * r['test']:.2f} | {r['exchanges']}{' (void)' if is_void(r) else ''} |")
    return "\n".join(lines)


def line(points, colour):
    return (f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" '
            'stroke-width="1.5"/>')


def text(x, y, words, anchor="start", colour="#000"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'


def plot(cell, targets, curves):
    """Medians of five over virtual time, the first seed of each competitor, as SVG."""
    width, height, left, top, right, bottom = 900, 520, 60, 30, 200, 50
    longest = max((c[-1][0] for c in curves.values() if c), default=1)
    low, high = min(targets.values()) * 0.9, max(targets.values()) * 2

    def x_of(t):
        return left + (width - left - right) * t / longest

    def y_of(e):
        return top + (height - top - bottom) * (high - min(max(e, low), high)) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>', text(left, 18, cell.name)]
    for name, t in targets.items():
        out.append(line([f"{x_of(0):.1f},{y_of(t):.1f}", f"{x_of(longest):.1f},{y_of(t):.1f}"], "#999"))
        out.append(text(x_of(longest), y_of(t) - 4, name, "end", "#666"))
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(line([f"{x_of(t):.1f},{y_of(e):.1f}" for t, e in curve], colour))
        out.append(text(width - right + 10, top + 16 * (i + 1), name, colour=colour))
    for k in range(6):
        e = low + (high - low) * k / 5
        out.append(text(x_of(longest * k / 5), height - 30, f"{longest * k / 5:.0f}", "middle"))
        out.append(text(left - 8, y_of(e) + 4, f"{100 * e:.1f}", "end"))
    out.append(text((left + width - right) / 2, height - 8,
                    "virtual seconds; % validation error, median of five evaluations", "middle"))
    return "\n".join(out) + "\n</svg>\n"


FRAME = (760, 420, 60, 34, 190, 46)  # width, height, and margins: left, top, right, bottom


def begin_drawing(title):
    width, height, left = FRAME[:3]
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="#fff"/>', text(left, 20, title)]


def chart(title, x_name, y_name, series, y_limits):
    """Lines over x, {label: [(x, y)]}, as SVG; values beyond the limits are drawn at them."""
    width, height, left, top, right, bottom = FRAME
    low, high = y_limits
    first = min((x for points in series.values() for x, _ in points), default=0)
    last = max((x for points in series.values() for x, _ in points), default=1)
    first = 0 if first < last / 4 and y_limits[0] > 0 else first

    def x_of(x):
        return left + (width - left - right) * (x - first) / max(last - first, 1e-9)

    def y_of(y):
        return top + (height - top - bottom) * (high - min(max(y, low), high)) / (high - low)

    out = begin_drawing(title)
    for i, (label, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(line([f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points], colour))
        out.append(text(width - right + 10, top + 16 * (i + 1), label, colour=colour))
    for k in range(6):
        x, y = first + (last - first) * k / 5, low + (high - low) * k / 5
        out.append(text(x_of(x), height - bottom + 16, f"{x:.4g}", "middle"))
        out.append(text(left - 8, y_of(y) + 4, f"{y:.4g}", "end"))
    out.append(text((left + width - right) / 2, height - 10, f"{x_name}; {y_name}", "middle"))
    return "\n".join(out) + "\n</svg>"


def bars(title, labels, series):
    """A group of bars for each label, one bar a series, {name: {label: value}}, as SVG."""
    width, height, left, top, right, bottom = FRAME
    highest = max(v for values in series.values() for v in values.values() if v < math.inf)
    group = (width - left - right) / len(labels)
    each = 0.8 * group / len(series)
    out = begin_drawing(title)
    for i, (name, values) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(text(width - right + 10, top + 16 * (i + 1), name, colour=colour))
        for k, label in enumerate(labels):
            value = values.get(label, math.inf)
            if value == math.inf:
                continue
            x, tall = left + group * k + 0.1 * group + each * i, (height - top - bottom) * value / highest
            out.append(f'<rect x="{x:.1f}" y="{height - bottom - tall:.1f}" width="{each:.1f}" '
                       f'height="{tall:.1f}" fill="{colour}"/>')
            out.append(text(x + each / 2, height - bottom - tall - 3, f"{value:.3g}", "middle", colour))
    for k, label in enumerate(labels):
        out.append(text(left + group * (k + 0.5), height - bottom + 16, label, "middle"))
    return "\n".join(out) + "\n</svg>"


def write(folder, cell, targets, results, curves):
    shown = table(cell, targets, results)
    with open(f"{folder}/{cell.name}.md", "w") as f:
        f.write(shown + "\n")
    with open(f"{folder}/{cell.name}.json", "w") as f:
        json.dump(finite({"cell": cell.name, "targets": targets, "results": results}), f, indent=1,
                  allow_nan=False)
    with open(f"{folder}/{cell.name}.svg", "w") as f:
        f.write(plot(cell, targets, curves))
    return shown
