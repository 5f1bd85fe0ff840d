// Draws a report, or the live page of a run, out of the JSON of src/cli/report_document.c. Texts of
// the document reach the page as text nodes and attributes alone, never as HTML.
'use strict';
(() => {
    const charts = [
        ['error', ['validation_error', 'test_error'], 'error'],
        ['loss', ['train_loss', 'validation_loss', 'test_loss'], 'loss'],
        ['speed', ['samples_per_s'], 'throughput'],
        ['rate', ['rate'], 'learning rate'],
        ['exchange', ['exchange_s', 'waited_s'], 'exchanges'],
        ['workers', ['workers'], 'workers'],
        ['batch', ['batch'], 'batch of all workers'],
    ];
    const stairs = new Set(['rate', 'workers', 'batch']);
    const axes = { t: 'time', epoch: 'epochs', samples: 'samples' };
    const purposeColors = {
        compute: 'var(--s0)', exchange: 'var(--s1)', wait: 'var(--edge)', data: 'var(--s5)', copy: 'var(--s3)',
        evaluate: 'var(--s7)', other: 'var(--rest)',
    };
    // In a timeline an exchange is behind its phases; waits and sent bytes are strips in front of what the node does meanwhile.
    const barColors = {
        ...purposeColors, exchange: 'color-mix(in srgb, var(--s1) 35%, var(--paper))', reduce: 'var(--s1)', prepare: 'var(--s2)',
        broadcast: 'var(--s6)', send: 'var(--ink)',
    };
    const strips = { wait: [0, 3], send: [9, 3] };
    const live = document.documentElement.dataset.live === 'yes';
    const view = { axis: 't', logarithmic: new Set(['loss']), hidden: new Set() };
    let data = null, status = null;

    // ---- elements ----

    const SVG = 'http://www.w3.org/2000/svg';
    function fill(element, attributes, children) {
        for (const [name, value] of Object.entries(attributes || {}))
            if (value !== undefined && value !== null) element.setAttribute(name, value);
        for (const child of children)
            if (child !== null && child !== undefined) element.append(child);
        return element;
    }
    const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
    const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

    // ---- numbers as text ----

    function grouped(value) {
        return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, '\u202f');
    }
    function plain(value, digits = 5) {
        if (value === null || !Number.isFinite(value)) return 'not finite';
        if (Number.isInteger(value) && Math.abs(value) < 1e15) return grouped(value);
        const text = value.toPrecision(digits);
        return /e/.test(text) ? String(Number(text)) : text.replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
    }
    function duration(s) {
        if (s === 0) return '0';
        if (Math.abs(s) < 1e-3) return plain(s * 1e6, 3) + ' µs';
        if (Math.abs(s) < 1) return plain(s * 1e3, 3) + ' ms';
        if (s < 120) return plain(s, 4) + ' s';
        if (s < 7200) return plain(s / 60, 3) + ' min';
        return plain(s / 3600, 3) + ' h';
    }
    function bytes(n) {
        const units = ['B', 'kB', 'MB', 'GB', 'TB'];
        let i = 0;
        while (n >= 1000 && i < units.length - 1) n /= 1000, i++;
        return plain(n, 4) + ' ' + units[i];
    }
    function show(value, unit) {
        if (typeof value === 'string') return value;
        if (value === null || !Number.isFinite(value)) return 'not finite';
        if (unit === 'share') return plain(100 * value, 4) + ' %';
        if (unit === 's') return duration(value);
        if (unit === 'bytes') return bytes(value);
        if (unit === 'samples/s') return (value >= 100 ? grouped(value) : plain(value, 3)) + ' samples/s';
        return plain(value) + (unit && unit !== 'share' ? ' ' + unit : '');
    }
    const nodeName = (node) => (node < 0 ? 'driver' : 'worker ' + node);
    const color = (i) => `var(--s${i % 8})`;

    // ---- scales ----

    function timeScale() {
        let most = 0;
        for (const run of data.runs)
            for (const curve of Object.values(run.curves)) most = Math.max(most, curve.t[curve.t.length - 1] || 0);
        return most > 3 * 3600 ? [3600, 'h'] : most > 300 ? [60, 'min'] : most < 0.5 ? [1e-3, 'ms'] : [1, 's'];
    }
    function ticks(from, to, about) {
        const rough = (to - from) / about, power = 10 ** Math.floor(Math.log10(rough));
        const distance = [1, 2, 5, 10].map((m) => m * power).find((d) => d >= rough * 0.99);
        const all = [];
        for (let i = Math.ceil(from / distance - 1e-9); i * distance <= to + 1e-9 * Math.abs(to); i++) all.push(i * distance);
        return all;
    }
    function logTicks(from, to) {
        const all = [], steps = Math.log10(to / from) > 3 ? [1] : Math.log10(to / from) > 1 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
        for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); e++)
            for (const m of steps)
                if (m * 10 ** e >= from * 0.9999 && m * 10 ** e <= to * 1.0001) all.push(m * 10 ** e);
        return all;
    }
    function tickText(value) {
        if (value === 0) return '0';
        const size = Math.abs(value);
        return size >= 1e7 || size < 1e-4 ? Number(value.toPrecision(4)).toExponential() : plain(value, 6);
    }
    function makeScale(from, to, at, length, logarithmic) {
        const a = logarithmic ? Math.log(from) : from, b = logarithmic ? Math.log(to) : to;
        return { from, to, logarithmic, place: (v) => at + ((logarithmic ? Math.log(v) : v) - a) / (b - a) * length };
    }

    // ---- curves ----

    const points = (run, key) => run.curves[key] || { t: [], epoch: [], samples: [], value: [] };

    // The curves of a chart that have points: a colour for each run, or where there is one run for
    // each curve.
    function curvesOf(keys) {
        const found = [];
        data.runs.forEach((run, r) => keys.forEach((key, k) => {
            const of = points(run, key);
            if (of.t.length === 0) return;
            const [, label, unit] = data.curves.find((c) => c[0] === key);
            const single = data.runs.length === 1;
            found.push({
                run: r, key, unit, of, dash: single ? 0 : k % 3, color: color(single ? k : r),
                label: single ? label : `${run.name}: ${label}`, hidden: view.hidden.has(r),
            });
        }));
        return found;
    }

    // Where there are more points than columns of pixels, each column keeps its first, least, greatest
    // and last point, so the line covers the same pixels.
    function thin(xs, ys, columns, from, to) {
        if (xs.length <= 4 * columns) return [...xs.keys()];
        const kept = [], column = (x) => Math.min(columns - 1, Math.floor((x - from) / (to - from) * columns));
        for (let i = 0, j; i < xs.length; i = j) {
            let least = i, most = i;
            for (j = i; j < xs.length && column(xs[j]) === column(xs[i]); j++) {
                if (ys[j] < ys[least]) least = j;
                if (ys[j] > ys[most]) most = j;
            }
            kept.push(...[...new Set([i, least, most, j - 1])].sort((a, b) => a - b));
        }
        return kept;
    }

    const usable = (y, logarithmic) => y !== null && Number.isFinite(y) && !(logarithmic && y <= 0);

    function pathOf(curve, x, y, columns) {
        const xs = curve.of[view.axis], ys = curve.of.value, step = stairs.has(curve.key);
        let text = '', drawn = false, last = 0;
        for (const i of thin(xs, ys, columns, x.from, x.to)) {
            if (!usable(ys[i], y.logarithmic)) {
                drawn = false;
                continue;
            }
            const px = x.place(xs[i]).toFixed(2), py = y.place(ys[i]).toFixed(2);
            text += drawn && step ? `H${px}V${py}` : `${drawn ? 'L' : 'M'}${px} ${py}`;
            drawn = true;
            last = i;
        }
        if (drawn && step && last === xs.length - 1) text += `H${x.place(x.to).toFixed(2)}`;
        return text;
    }

    function extent(curves, logarithmic) {
        let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
        for (const run of data.runs) // one axis for all charts
            for (const of of Object.values(run.curves)) {
                const xs = of[view.axis];
                if (xs.length === 0) continue;
                x0 = Math.min(x0, xs[0]);
                x1 = Math.max(x1, xs[xs.length - 1]);
            }
        for (const curve of curves)
            for (const y of curve.of.value)
                if (usable(y, logarithmic)) {
                    if (y < y0) y0 = y;
                    if (y > y1) y1 = y;
                }
        if (!(x0 <= x1)) [x0, x1] = [0, 1];
        if (x0 === x1) x1 = x0 + 1;
        x0 = Math.min(x0, 0);
        if (!(y0 <= y1)) [y0, y1] = logarithmic ? [0.1, 1] : [0, 1];
        if (logarithmic) return [x0, x1, y0 / 1.1, y1 * 1.1];
        if (y0 > 0) y0 = y0 > 0.6 * y1 && y1 > y0 ? y0 - 0.1 * (y1 - y0) : 0;
        if (y0 === y1) y1 = y0 + 1;
        return [x0, x1, y0, y1 + 0.04 * (y1 - y0)];
    }

    // ---- a chart ----

    const size = { width: 620, height: 250, left: 58, right: 12, top: 14, bottom: 40 };

    function drawAxes(plot, x, y, unit) {
        const [divide, name] = view.axis === 't' ? timeScale() : [1, ''];
        const bottom = size.height - size.bottom, right = size.width - size.right;
        for (const tick of ticks(x.from / divide, x.to / divide, 6)) {
            const at = x.place(tick * divide).toFixed(1);
            plot.append(svg('line', { class: 'grid', x1: at, y1: size.top, x2: at, y2: bottom }),
                svg('text', { x: at, y: bottom + 15, 'text-anchor': 'middle' }, tickText(tick)));
        }
        const percent = unit === 'share' ? 100 : 1;
        const values = y.logarithmic ? logTicks(y.from * percent, y.to * percent) : ticks(y.from * percent, y.to * percent, 5);
        for (const tick of values) {
            const at = y.place(tick / percent).toFixed(1);
            plot.append(svg('line', { class: 'grid', x1: size.left, y1: at, x2: right, y2: at }),
                svg('text', { x: size.left - 6, y: Number(at) + 3.5, 'text-anchor': 'end' }, tickText(tick)));
        }
        plot.append(svg('rect', {
            class: 'frame', x: size.left, y: size.top, width: right - size.left, height: bottom - size.top,
        }), svg('text', { class: 'name', x: (size.left + right) / 2, y: size.height - 6, 'text-anchor': 'middle' },
            axes[view.axis] + (name ? `, ${name}` : '')));
    }

    function drawMarks(plot, x) {
        const bottom = size.height - size.bottom;
        data.runs.forEach((run, r) => {
            if (view.hidden.has(r)) return;
            let checkpoints = 0;
            for (const [t, epoch, samples, , kind, text] of shownMarks(run)) {
                const at = x.place({ t, epoch, samples }[view.axis]).toFixed(1);
                if (kind === 'checkpoint' && ++checkpoints > 200) continue;
                plot.append(svg('line', {
                    class: 'mark ' + kind, x1: at, x2: at, y2: bottom, y1: kind === 'checkpoint' ? bottom - 5 : size.top,
                }, svg('title', {}, `${show(t, 's')}: ${text}`)));
                if (kind !== 'checkpoint')
                    plot.append(svg('path', {
                        class: 'sign ' + kind,
                        d: kind === 'fault' ? `M${at} ${size.top}l-4 -7h8z` : `M${at} ${size.top - 7}l-4 7h8z`,
                    }, svg('title', {}, `${show(t, 's')}: ${text}`)));
            }
        });
    }

    // Faults and recoveries, and few checkpoints: a chart of thousands of lines shows none.
    function shownMarks(run) {
        const shown = run.marks.filter((m) => m[4] === 'fault' || m[4] === 'recovery' || m[4] === 'checkpoint');
        return shown.length <= 600 ? shown : shown.filter((m) => m[4] !== 'checkpoint').slice(0, 600);
    }

    function nearest(xs, x) {
        let [from, to] = [0, xs.length - 1];
        while (to - from > 1) {
            const middle = (from + to) >> 1;
            if (xs[middle] < x) from = middle;
            else to = middle;
        }
        return Math.abs(xs[from] - x) <= Math.abs(xs[to] - x) ? from : to;
    }

    function follow(figure, drawing, curves, x) {
        const tip = html('div', { class: 'tip' }), cursor = svg('line', { class: 'cursor', y1: size.top, y2: size.height - size.bottom });
        cursor.style.display = 'none';
        drawing.append(cursor);
        figure.append(tip);
        drawing.addEventListener('pointermove', (event) => {
            const box = drawing.getBoundingClientRect(), px = (event.clientX - box.left) / box.width * size.width;
            const share = (px - size.left) / (size.width - size.left - size.right);
            const inside = share >= 0 && share <= 1;
            cursor.style.display = tip.style.display = inside ? 'block' : 'none';
            if (!inside) return;
            cursor.setAttribute('x1', px);
            cursor.setAttribute('x2', px);
            const value = x.from + share * (x.to - x.from);
            tip.replaceChildren(html('div', { class: 'note' }, `${axes[view.axis]}: ${show(value, view.axis === 't' ? 's' : '')}`),
                ...curves.filter((c) => !c.hidden).map((c) => {
                    const i = nearest(c.of[view.axis], value), swatch = html('span', { class: `swatch d${c.dash}` });
                    swatch.style.color = c.color;
                    return html('div', {}, swatch, `${c.label}: ${show(c.of.value[i], c.unit)}`);
                }));
            const at = event.clientX - figure.getBoundingClientRect().left;
            tip.style.left = (share > 0.6 ? at - tip.offsetWidth - 14 : at + 14) + 'px';
            tip.style.top = '46px';
        });
        drawing.addEventListener('pointerleave', () => { cursor.style.display = tip.style.display = 'none'; });
    }

    function key(curve) {
        const swatch = html('span', { class: `swatch d${curve.dash}` });
        swatch.style.color = curve.color;
        return html('span', { class: 'key' }, swatch, `${curve.label} ${show(curve.of.value[curve.of.value.length - 1], curve.unit)}`);
    }

    // The table of all points of a chart, made when it is opened.
    function tableOf(curves, title) {
        const details = html('details', {}, html('summary', {}, 'table'));
        details.addEventListener('toggle', () => {
            if (!details.open || details.childElementCount > 1) return;
            const rows = [];
            for (const c of curves)
                c.of.t.forEach((t, i) => rows.push(html('tr', {}, html('td', {}, c.label), ...[t, c.of.epoch[i], c.of.samples[i], c.of.value[i]]
                    .map((v) => html('td', { class: 'number' }, v === null ? 'not finite' : String(v))))));
            details.append(html('div', { class: 'scroll' }, html('table', { 'aria-label': title },
                html('thead', {}, html('tr', {}, ...['curve', 'time, s', 'epochs', 'samples', `value${unitName(curves)}`]
                    .map((name) => html('th', { scope: 'col' }, name)))), html('tbody', {}, ...rows))));
        });
        return details;
    }

    function unitName(curves) {
        const unit = curves[0].unit;
        return unit ? `, ${unit}` : '';
    }

    function drawChart([id, keys, title]) {
        const curves = curvesOf(keys);
        if (curves.length === 0) return null;
        const shown = curves.filter((c) => !c.hidden), logarithmic = view.logarithmic.has(id);
        const [x0, x1, y0, y1] = extent(shown, logarithmic), unit = curves[0].unit;
        const width = size.width - size.left - size.right, height = size.height - size.top - size.bottom;
        const x = makeScale(x0, x1, size.left, width, false), y = makeScale(y0, y1, size.height - size.bottom, -height, logarithmic);
        const unitText = unit === 'share' ? '%' : unit, caption = title + (unitText ? `, ${unitText}` : '');
        const drawing = svg('svg', {
            viewBox: `0 0 ${size.width} ${size.height}`, role: 'img', 'data-chart': id, 'data-axis': view.axis,
            'data-x0': x0, 'data-x1': x1, 'data-y0': y0, 'data-y1': y1, 'data-log': logarithmic ? 1 : 0,
            'data-left': size.left, 'data-top': size.top, 'data-width': width, 'data-height': height,
            'aria-label': `${caption} over ${axes[view.axis]}; ` + curves.map((c) =>
                `${c.label}: from ${show(c.of.value[0], c.unit)} to ${show(c.of.value[c.of.value.length - 1], c.unit)}`).join('; '),
        });
        drawAxes(drawing, x, y, unit);
        drawMarks(drawing, x);
        for (const c of shown) {
            drawing.append(svg('path', {
                class: `curve d${c.dash}`, 'data-curve': c.key, 'data-run': c.run, stroke: c.color, d: pathOf(c, x, y, width),
            }));
            if (c.of.t.length === 1 && usable(c.of.value[0], logarithmic))
                drawing.append(svg('circle', {
                    cx: x.place(c.of[view.axis][0]), cy: y.place(c.of.value[0]), r: 3, fill: c.color,
                }));
        }
        const box = html('input', { type: 'checkbox' });
        box.checked = logarithmic;
        box.addEventListener('change', () => {
            view.logarithmic[box.checked ? 'add' : 'delete'](id);
            drawAll();
        });
        const figure = html('figure', {}, html('figcaption', {}, html('h3', {}, caption), ...curves.map(key),
            html('label', { class: 'scale' }, box, ' logarithmic')), drawing);
        follow(figure, drawing, shown, x);
        figure.append(tableOf(curves, caption));
        return figure;
    }

    // ---- tables ----

    function change(value, first) {
        if (typeof value !== 'number' || typeof first !== 'number' || first === 0 || value === first) return null;
        const share = 100 * (value / first - 1);
        return html('span', { class: 'more' }, ` ${share > 0 ? '+' : '−'}${plain(Math.abs(share), 3)} %`);
    }

    // A row for each fact that any run has, a column for each run.
    function drawFacts() {
        const rows = new Map();
        data.runs.forEach((run, r) => run.facts.forEach(([group, label, unit, value]) => {
            const id = group + '\n' + label;
            if (!rows.has(id)) rows.set(id, { group, label, unit, values: [] });
            rows.get(id).values[r] = value;
        }));
        const several = data.runs.length > 1, groups = ['result', 'books', 'events', 'run', 'machine'];
        const tables = groups.map((group) => {
            const of = [...rows.values()].filter((row) => row.group === group);
            if (of.length === 0) return null;
            const head = html('tr', {}, html('th', { class: 'group', scope: 'col' }, group),
                ...data.runs.map((run) => html('th', { scope: 'col' }, several ? run.name : '')));
            return html('table', {}, html('thead', {}, head), html('tbody', {}, ...of.map(({ label, unit, values }) => {
                const differ = several && data.runs.some((_, r) => values[r] !== values[0]);
                return html('tr', { class: differ ? 'differs' : null }, html('th', { scope: 'row' }, label),
                    ...data.runs.map((_, r) => html('td', {}, values[r] === undefined ? '–' : show(values[r], unit),
                        r > 0 ? change(values[r], values[0]) : null)));
            })));
        });
        const parts = [html('div', { class: several ? 'wide' : 'facts' }, ...tables)];
        if (data.differences.length > 0)
            parts.push(html('h3', {}, 'Fields of the jobs that differ'), html('table', {}, html('thead', {}, html('tr', {}, html('th', {}, 'field'),
                ...data.runs.map((run) => html('th', { scope: 'col' }, run.name)))), html('tbody', {}, ...data.differences.map(([path, ...values]) =>
                html('tr', {}, html('th', { scope: 'row' }, path), ...values.map((v) => html('td', {}, v === '' ? '–' : v)))))));
        return parts;
    }

    function drawMarksTable(run) {
        if (run.marks.length === 0) return null;
        const body = html('tbody', {}, ...run.marks.map(([t, epoch, , , kind, text]) => html('tr', {},
            html('td', { class: 'number' }, show(t, 's')), html('td', { class: 'number' }, plain(epoch, 4)),
            html('td', { class: 'kind ' + kind }, kind), html('td', {}, text))));
        const table = html('table', {}, html('thead', {}, html('tr', {}, ...['time', 'epochs', 'kind', 'what'].map((n) => html('th', { scope: 'col' }, n)))), body);
        return html('div', { class: 'scroll', tabindex: 0 }, table);
    }

    // "driver, workers 0–3, 7"
    function nodeList(nodes) {
        const runs = [];
        for (const node of nodes.filter((n) => n >= 0)) {
            const last = runs[runs.length - 1];
            if (last && last[1] === node - 1) last[1] = node;
            else runs.push([node, node]);
        }
        const workers = runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(', ');
        const several = nodes.filter((n) => n >= 0).length > 1;
        return [nodes.includes(-1) ? 'driver' : '', workers && `worker${several ? 's' : ''} ${workers}`].filter(Boolean).join(', ');
    }
    function hostsTable(hosts) {
        if (!hosts || hosts.length === 0) return null;
        const cell = (value, unit) => html('td', {}, value === null ? '–' : show(value, unit));
        return html('table', { 'aria-label': 'machines' }, html('thead', {}, html('tr', {}, ...['machine', 'processor', 'cores', 'memory', 'nodes'].map((n) => html('th', { scope: 'col' }, n)))),
            html('tbody', {}, ...hosts.map(([name, cpu, cores, memory, nodes]) => html('tr', {}, html('th', { scope: 'row' }, name),
                cell(cpu, ''), cell(cores, ''), cell(memory, 'bytes'), html('td', {}, nodeList(nodes))))));
    }

    function objectsTable(list) {
        if (!list || list.length === 0) return null;
        const keys = [...new Set(list.flatMap((o) => Object.keys(o)))].filter((k) => !['t', 'kind', 'simulated'].includes(k));
        return html('table', {}, html('thead', {}, html('tr', {}, ...keys.map((k) => html('th', { scope: 'col' }, k)))),
            html('tbody', {}, ...list.map((o) => html('tr', {}, ...keys.map((k) => html('td', {}, o[k] === undefined ? '–' : show(o[k], '')))))));
    }

    // ---- where time went ----

    function shareText(share) {
        return share >= 0.01 ? ` ${(100 * share).toFixed(0)} %` : share > 0 ? ' < 1 %' : '';
    }
    function drawPurposes({ purposes, nodes }) {
        const used = purposes.map((_, i) => i).filter((i) => nodes.some((n) => n[i + 1] > 0));
        const height = 24 * nodes.length + 34, width = 560, left = 70, most = Math.max(...nodes.map((n) => n.slice(1).reduce((a, b) => a + b, 0)), 1e-9);
        const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'time of each node by purpose; the table below has the numbers' });
        nodes.forEach(([node, ...seconds], row) => {
            let at = left;
            drawing.append(svg('text', { class: 'name', x: left - 8, y: 24 * row + 16, 'text-anchor': 'end' }, nodeName(node)));
            for (const i of used) {
                const w = seconds[i] / most * (width - left - 10);
                drawing.append(svg('rect', { x: at, y: 24 * row + 3, width: w, height: 18, style: `fill:${purposeColors[purposes[i]]}` },
                    svg('title', {}, `${nodeName(node)}, ${purposes[i]}: ${duration(seconds[i])}`)));
                at += w;
            }
        });
        for (const tick of ticks(0, most, 5))
            drawing.append(svg('text', { x: left + tick / most * (width - left - 10), y: height - 18, 'text-anchor': 'middle' }, tickText(tick)));
        drawing.append(svg('text', { class: 'name', x: (left + width) / 2, y: height - 3, 'text-anchor': 'middle' }, 'seconds'));
        const legend = html('figcaption', {}, html('h3', {}, 'time by purpose'), ...used.map((i) => {
            const block = html('span', { class: 'block' });
            block.style.background = purposeColors[purposes[i]];
            return html('span', { class: 'key' }, block, purposes[i]);
        }));
        const table = html('table', {}, html('thead', {}, html('tr', {}, html('th', {}, 'node'), ...used.map((i) => html('th', { scope: 'col', class: 'number' }, purposes[i])))),
            html('tbody', {}, ...nodes.map(([node, ...seconds]) => {
                const sum = seconds.reduce((a, b) => a + b, 0);
                return html('tr', {}, html('th', { scope: 'row' }, nodeName(node)), ...used.map((i) =>
                    html('td', { class: 'number' }, duration(seconds[i]), html('span', { class: 'more' }, shareText(seconds[i] / sum)))));
            })));
        return html('figure', {}, legend, drawing, html('p', { class: 'note' }, 'An exchange in the background of a step counts as computing; ' +
            'a wait is time in which the node did nothing else.'), html('div', { class: 'scroll', tabindex: 0 }, table));
    }

    function drawMatrix(trace) {
        const n = trace.stood.length, used = [...Array(n).keys()].filter((i) => trace.nodes.some((x) => x[0] === i - 1) ||
            trace.waits.some((row) => row[i] > 0));
        const most = Math.max(1e-12, ...trace.stood.flat());
        const rows = used.map((i) => html('tr', {}, html('th', { scope: 'row' }, nodeName(i - 1)), ...used.map((k) => {
            const value = trace.stood[i][k], cell = html('td', { title: `all waits, also in the background: ${duration(trace.waits[i][k])}` }, i === k ? '' : value > 0 ? duration(value) : '0');
            cell.style.background = `color-mix(in srgb, var(--s2) ${(value / most * 70).toFixed(0)}%, transparent)`;
            return cell;
        })));
        return html('figure', {}, html('figcaption', {}, html('h3', {}, 'who waited for whom')),
            html('div', { class: 'scroll', tabindex: 0 }, html('table', { class: 'matrix' }, html('caption', {}, 'Seconds in which the node of the row did nothing but wait for that of the column.'),
                html('thead', {}, html('tr', {}, html('th', {}, 'waited ↓ for →'), ...used.map((k) => html('th', { scope: 'col' }, nodeName(k - 1))))), html('tbody', {}, ...rows))));
    }

    function drawWaited(run) {
        if (run.waited.length === 0) return null;
        const most = Math.max(...run.waited.map((w) => w[2])), causes = ['its step was long', 'its data came late', 'its link was slow', 'it stood still', 'it evaluated a model'];
        const known = causes.map((_, i) => i).filter((i) => run.waited.some((w) => w[3 + i] > 0));
        return html('figure', {}, html('figcaption', {}, html('h3', {}, 'who held exchanges up')), html('table', { class: 'matrix' },
            html('caption', {}, 'The longest wait of each exchange, by the worker that held it up, or the node that was waited for; and the causes.'),
            html('thead', {}, html('tr', {}, ...['node', 'exchanges', 'seconds', ...known.map((i) => causes[i])].map((x) => html('th', { scope: 'col' }, x)))),
            html('tbody', {}, ...run.waited.map(([node, count, seconds, ...by]) => {
                const cell = html('td', {}, duration(seconds));
                cell.style.background = `color-mix(in srgb, var(--s2) ${(seconds / most * 70).toFixed(0)}%, transparent)`;
                return html('tr', {}, html('th', { scope: 'row' }, nodeName(node)), html('td', {}, grouped(count)), cell,
                    ...known.map((i) => html('td', {}, grouped(by[i]))));
            }))), drawWaits(run));
    }

    function drawWaits(run) {
        if (run.waits.length === 0) return null;
        return html('table', {}, html('caption', {}, 'The longest waits whose cause is known.'),
            html('thead', {}, html('tr', {}, ...['time', 'exchange', 'what happened'].map((x) => html('th', { scope: 'col' }, x)))),
            html('tbody', {}, ...run.waits.map(([t, n, text]) => html('tr', {}, html('td', { class: 'kind' }, duration(t)), html('td', {}, grouped(n)), html('td', {}, text)))));
    }

    // A stretch of the run, a row for each thing that a node does at the same time (MPCA, Fig. 9).
    function drawWindow({ window: [from, to], spans, rows }) {
        if (spans.length === 0) return null;
        const names = new Map(rows.map(([node, row, name]) => [node + ':' + row, name]));
        const lines = [...new Set(spans.map(([node, row]) => node * 100000 + row))].sort((a, b) => a - b).slice(0, 64);
        const at = new Map(lines.map((line, i) => [line, i]));
        const width = 1280, left = 190, height = lines.length * 17 + 36;
        const drawing = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `what each node did from ${duration(from)} to ${duration(to)}` });
        const x = (t) => left + (Math.min(Math.max(t, from), to) - from) / (to - from) * (width - left - 10);
        lines.forEach((line, i) => {
            const node = Math.floor(line / 100000), row = line - node * 100000;
            drawing.append(svg('text', { class: 'name', x: left - 8, y: i * 17 + 12, 'text-anchor': 'end' }, `${nodeName(node)}: ${names.get(node + ':' + row) || row}`));
        });
        for (const [node, row, purpose, start, end] of spans) {
            const i = at.get(node * 100000 + row), [top, tall] = strips[purpose] || [0, 12];
            if (i === undefined) continue;
            drawing.append(svg('rect', {
                x: x(start).toFixed(2), y: i * 17 + 2 + top, width: Math.max(1, x(end) - x(start)).toFixed(2), height: tall, style: `fill:${barColors[purpose]}`,
            }, svg('title', {}, `${purpose}: ${duration(end - start)} from ${duration(start)}`)));
        }
        const unit = to - from < 0.5 ? [1e-3, 'ms'] : [1, 's'];
        for (const tick of ticks(from / unit[0], to / unit[0], 8))
            drawing.append(svg('text', { x: x(tick * unit[0]), y: height - 20, 'text-anchor': 'middle' }, tickText(tick)));
        drawing.append(svg('text', { class: 'name', x: (left + width) / 2, y: height - 4, 'text-anchor': 'middle' }, `time, ${unit[1]}`));
        const legend = Object.keys(barColors).filter((p) => spans.some((s) => s[2] === p)).map((p) => {
            const block = html('span', { class: 'block' });
            block.style.background = barColors[p];
            return html('span', { class: 'key' }, block, p);
        });
        return html('figure', {}, html('figcaption', {}, html('h3', {}, 'timeline, from the middle of the run'), ...legend), drawing);
    }

    function drawRun(run) {
        const several = data.runs.length > 1, parts = [html('h2', {}, several ? run.name : 'Where time went')];
        const sides = html('div', { class: 'sides' });
        if (run.trace) sides.append(drawPurposes(run.trace), drawMatrix(run.trace));
        const waited = drawWaited(run);
        if (waited) sides.append(waited);
        if (!run.trace) sides.append(html('p', { class: 'note' }, live ? 'A report with --trace shows the time of each node by purpose, after the run.' :
            'No trace: a run with --trace FILE, and a report with it, show the time of each node by purpose.'));
        parts.push(sides, run.trace ? drawWindow(run.trace) : null);
        const marks = drawMarksTable(run), hosts = hostsTable(run.hosts), machines = objectsTable(run.machines), sets = objectsTable(run.sets);
        if (marks) parts.push(html(several ? 'h3' : 'h2', {}, 'Faults, recoveries and other events'), marks);
        if (hosts) parts.push(html(several ? 'h3' : 'h2', {}, 'Machines'), hosts);
        if (machines) parts.push(html(several ? 'h3' : 'h2', {}, 'Measured steps and links'), machines);
        if (sets) parts.push(html(several ? 'h3' : 'h2', {}, 'Sets of records'), sets);
        if (run.texts && run.texts.length > 0)
            parts.push(html(several ? 'h3' : 'h2', {}, 'Texts of the model, the newest first'), html('div', { class: 'wrap' }, ...run.texts.map((t) => html('pre', {}, t))));
        if (run.job)
            parts.push(html(several ? 'h3' : 'h2', {}, 'Job'), html('details', {}, html('summary', {}, `${run.directory}/job.prototxt`), html('pre', {}, run.job)));
        return html('section', {}, ...parts);
    }

    // ---- the page ----

    function drawHead() {
        const run = data.runs[0], several = data.runs.length > 1;
        const names = several ? `${data.runs.length} runs` : run.name;
        document.title = (live ? 'live: ' : '') + data.runs.map((r) => r.name).join(', ');
        return html('header', {}, html('h1', {}, names), html('p', { class: 'note' },
            data.runs.map((r) => r.directory + (r.simulated ? ' (simulated)' : '')).join(', ')), html('p', { class: 'status', role: 'status', id: 'status' }));
    }

    function drawControls() {
        const fields = html('fieldset', {}, html('legend', {}, 'horizontal axis'), ...Object.entries(axes).map(([id, name]) => {
            const radio = html('input', { type: 'radio', name: 'axis', value: id });
            radio.checked = view.axis === id;
            radio.addEventListener('change', () => {
                view.axis = id;
                drawAll();
            });
            return html('label', {}, radio, ' ' + name);
        }));
        const runs = data.runs.length < 2 ? null : html('fieldset', {}, html('legend', {}, 'runs'), ...data.runs.map((run, r) => {
            const box = html('input', { type: 'checkbox' }), swatch = html('span', { class: 'swatch' });
            box.checked = !view.hidden.has(r);
            swatch.style.color = color(r);
            box.addEventListener('change', () => {
                view.hidden[box.checked ? 'delete' : 'add'](r);
                drawAll();
            });
            return html('label', {}, box, ' ', swatch, run.name);
        }));
        const signs = html('span', { class: 'note' }, '▼ fault, ▲ recovery, short line: checkpoint');
        return html('nav', { class: 'controls', 'aria-label': 'what the charts show' }, fields, runs, signs);
    }

    const place = { charts: null, facts: null, runs: null };

    function drawCharts() {
        place.charts.replaceChildren(...charts.map(drawChart).filter(Boolean));
    }
    function drawAll() {
        drawCharts();
        place.facts.replaceChildren(...drawFacts());
    }
    // #tables opens the tables of all charts, #error that of the errors.
    function openTables() {
        const wanted = location.hash.slice(1);
        for (const chart of place.charts.querySelectorAll('[data-chart]'))
            if (wanted === 'tables' || wanted === chart.dataset.chart) chart.parentNode.querySelector('details').open = true;
    }
    function drawPage() {
        place.charts = html('div', { class: 'charts' });
        place.facts = html('div', {});
        place.runs = html('div', {});
        document.body.replaceChildren(drawHead(), drawControls(), html('main', {}, place.charts,
            html('h2', {}, data.runs.length > 1 ? 'Runs and their differences' : 'Run'), place.facts, place.runs),
            html('footer', {}, html('p', { class: 'note' }, `Paceline ${data.version}`)));
        drawAll();
        place.runs.replaceChildren(...data.runs.map(drawRun));
        drawStatus();
        openTables();
        document.documentElement.dataset.drawn = Math.round(performance.now());
    }

    // ---- live ----

    function drawStatus(lost) {
        const line = document.getElementById('status');
        if (!line || !live) return;
        if (data && data.runs[0].ended) line.replaceChildren('The run has ended.');
        else if (lost) line.replaceChildren(html('span', { class: 'lost' }, 'The connection to the driver is lost; trying again.'));
        else if (status) line.replaceChildren(html('b', {}, 'live'), ' · ' + status.filter(Boolean).join(' · '));
    }
    // Drawing takes a fifth of the time at most, but does not stop for longer than 400 ms; an open table
    // stays open.
    let nextDrawing = 0, waiting = null;
    function redrawSoon() {
        if (waiting) return;
        waiting = setTimeout(() => {
            const begun = performance.now();
            waiting = null;
            const open = [...place.charts.querySelectorAll('details')].map((d) => d.open);
            drawAll();
            if (open.some(Boolean)) [...place.charts.querySelectorAll('details')].forEach((d, i) => { d.open = open[i]; });
            const scroll = window.scrollY, job = place.runs.querySelector('details[open]') !== null;
            place.runs.replaceChildren(...data.runs.map(drawRun));
            if (job) place.runs.querySelectorAll('details').forEach((d) => { d.open = true; });
            window.scrollTo(0, scroll);
            drawStatus();
            const ended = performance.now();
            nextDrawing = ended + Math.min(400, 4 * (ended - begun));
        }, Math.max(0, nextDrawing - performance.now()));
    }
    function takeChange(text) {
        const run = data.runs[0], { curves, ...rest } = JSON.parse(text);
        for (const [name, more] of Object.entries(curves))
            for (const column of Object.keys(more)) run.curves[name][column].push(...more[column]);
        Object.assign(run, rest);
        redrawSoon();
    }
    function connect() {
        const source = new EventSource('events' + location.search);
        source.addEventListener('document', (event) => {
            data = JSON.parse(event.data);
            drawPage();
        });
        source.addEventListener('change', (event) => takeChange(event.data));
        source.addEventListener('status', (event) => {
            status = JSON.parse(event.data);
            drawStatus();
        });
        source.addEventListener('end', () => source.close());
        source.onerror = () => drawStatus(true);
    }

    if (live) {
        connect();
    } else {
        data = JSON.parse(document.getElementById('data').textContent);
        drawPage();
    }
})();
