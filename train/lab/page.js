// Draws the charts and tables of a report from its block of data.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let printing = false;

  // ---------------------------------------------------------------------------------------------
  // Styles of series: a colour for each variant, told apart by colour-blind readers too, then dashes
  // and markers for its options.

  const palettes = {  // after Okabe and Ito (2008), with contrast of at least 3 to the background
    light: ['#0072b2', '#d55e00', '#008a63', '#b5568f', '#b07d00', '#3a8fc7', '#6a4fb3', '#5c6670'],
    dark: ['#4ba3e3', '#ff8a4c', '#2fc79b', '#e59ac4', '#f0b93a', '#96d3f7', '#ab97f0', '#aab4be'],
  };
  const dashes = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  const markers = ['circle', 'triangle', 'rect', 'rectRot', 'crossRot', 'star', 'cross'];
  const isDark = () => dark.matches && !printing;
  const theme = () => isDark()
    ? {fg: '#e7eaee', dim: '#9aa5b1', grid: '#262d35', card: '#171b21', colours: palettes.dark}
    : {fg: '#1b1f24', dim: '#59636e', grid: '#e8ebef', card: '#ffffff', colours: palettes.light};
  const baseOf = label => label.split(/ |·/)[0];
  const isTheory = label => /theor|floor|bound|closed form|expected|predict/i.test(label);

  /// Assigns {colour, dash, marker} to labels. Labels that begin with the same word share a colour,
  /// unless that leaves too few colours to tell them apart.
  function styles(labels, known = []) {
    const all = [...new Set([...known, ...labels])];
    const bases = [...new Set(all.map(baseOf))];
    const used = new Map();
    const out = new Map();
    const counts = bases.map(base => labels.filter(label => baseOf(label) === base).length).filter(Boolean);
    const byBase = counts.length > 1 && Math.max(...counts) <= dashes.length &&
                   (counts.length > 2 || labels.length <= 2 * counts.length);
    for (const label of byBase ? all : labels) {
      const base = byBase ? bases.indexOf(baseOf(label)) : labels.indexOf(label);
      const n = byBase ? (used.get(base) || 0) : 0;
      if (labels.includes(label)) used.set(base, n + 1);
      const row = Math.floor(base / 8);
      out.set(label, {colour: base % 8, dash: dashes[(row + n) % dashes.length],
                      marker: markers[(base + row + n) % markers.length]});
    }
    return out;
  }
  const variantStyles = styles(data.variants);
  /// Styles of the series of one chart: those of variants where they are known.
  function stylesFor(labels) {
    if (labels.every(label => variantStyles.has(label))) return variantStyles;
    const bases = new Set(data.variants.map(baseOf));
    return labels.some(label => bases.has(baseOf(label))) ? styles(labels, data.variants)
                                                          : styles(labels);
  }
  const colourOf = style => style.theory ? theme().dim : theme().colours[style.colour];
  const alpha = (hex, a) => hex + Math.round(a * 255).toString(16).padStart(2, '0');

  // ---------------------------------------------------------------------------------------------
  // Small helpers.

  function element(name, attributes = {}, ...children) {
    const out = document.createElement(name);
    for (const [key, value] of Object.entries(attributes))
      if (value !== undefined && value !== false) out.setAttribute(key, value === true ? '' : value);
    out.append(...children);
    return out;
  }
  const finite = x => typeof x === 'number' && Number.isFinite(x);
  function format(value, digits = 4) {
    if (value === null || value === undefined) return '–';
    if (typeof value !== 'number') return String(value);
    if (!Number.isFinite(value)) return String(value);
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < Math.max(1e9, 10 ** digits)) return value.toLocaleString('en').replace(/,/g, '\u202f');
    if (size >= 10 ** digits && size < 1e7) return Math.round(value).toLocaleString('en').replace(/,/g, '\u202f');
    const short = Number(value.toPrecision(digits));
    return size >= 1e9 || size < 1e-4 ? short.toExponential() : String(short);
  }
  function tick(value) {
    const size = Math.abs(value);
    if (size >= 1e9) return +(value / 1e9).toPrecision(3) + 'G';
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + 'M';
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + 'k';
    if (size > 0 && size < 1e-3) {
      const [mantissa, exponent] = value.toExponential().split('e');
      const power = '10' + exponent.replace('-', '⁻').replace(/\d/g, d => '⁰¹²³⁴⁵⁶⁷⁸⁹'[d]);
      return mantissa === '1' ? power : `${+(+mantissa).toPrecision(3)}·${power}`;
    }
    return String(+value.toPrecision(4));
  }
  const median = values => {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : NaN;
  };

  function swatch(style) {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('class', 'swatch');
    svg.setAttribute('width', '26');
    svg.setAttribute('height', '12');
    svg.setAttribute('aria-hidden', 'true');
    const shapes = {
      circle: '<circle cx="13" cy="6" r="3.6"/>', rect: '<path d="M9.6 2.6h6.8v6.8h-6.8z"/>',
      triangle: '<path d="M13 1.6 17 9H9z"/>', rectRot: '<path d="M13 1.4 17.6 6 13 10.6 8.4 6z"/>',
      crossRot: '<path d="m10 3 6 6m0-6-6 6" stroke-width="2"/>',
      cross: '<path d="M13 2v8M9 6h8" stroke-width="2"/>',
      star: '<path d="M13 2v8M9 6h8m-6.800-2.800 5.600 5.600m0-5.600-5.600 5.600" stroke-width="1.500"/>',
    };
    svg.innerHTML = `<line x1="0" x2="26" y1="6" y2="6" stroke-width="2" stroke-dasharray="${
      (style.dash || []).join(' ')}"/>${style.theory ? '' : shapes[style.marker]}`;
    const paint = () => {
      const colour = colourOf(style);
      svg.setAttribute('stroke', colour);
      svg.setAttribute('fill', colour);
    };
    paint();
    repaints.push(paint);
    return svg;
  }
  const repaints = [];  // called when the theme changes

  // ---------------------------------------------------------------------------------------------
  // Tables.

  /// Numbers, with what JSON has in their place.
  const isNumeric = column => column.values.every(v => v === null || typeof v === 'number' || v === 'Infinity' || v === '-Infinity');
  /// Makes a bar of the interval of a row, between the least and the greatest end of all intervals.
  function intervalBars(columns) {
    const [score, low, high] = ['score', 'low', 'high'].map(name => columns.find(c => c.name === name).values);
    // An interval of two seeds may be far wider than everything that can be measured.
    const ends = score.flatMap((mean, i) => [mean, low[i], high[i]].filter(
      x => finite(x) && x >= Math.min(0, mean) && x <= Math.max(1, mean)));
    const least = Math.min(...ends), greatest = Math.max(...ends);
    const place = x => 100 * (Math.min(Math.max(x, least), greatest) - least) / (greatest - least);
    return r => {
      if (!finite(score[r]) || !(greatest > least)) return '';
      const bar = element('span', {class: 'interval', 'aria-hidden': 'true'});
      if (finite(low[r]) && finite(high[r])) {
        const range = element('i');
        range.style.left = `${place(low[r]).toFixed(1)}%`;
        range.style.width = `${(place(high[r]) - place(low[r])).toFixed(1)}%`;
        bar.append(range);
      }
      const mean = element('b');
      mean.style.left = `${place(score[r]).toFixed(1)}%`;
      bar.append(mean);
      return bar;
    };
  }
  /// A cell; of a long text the beginning, which opens.
  function cellOf(column, r, numeric, first) {
    const text = format(column.values[r], column.digits);
    const long = !numeric && !first && text.length > 60 && column.name !== 'command';
    return element(first ? 'th' : 'td', {class: numeric && 'n', scope: first && 'row'}, !long ? text
      : element('details', {class: 'long'}, element('summary', {}, `${[...text].slice(0, 30).join('')}…`), text));
  }
  /// A table of columns {name, heading, digits, values}, which a click on a heading sorts. Cells [row, column]
  /// in `marked` have an asterisk. `board`: all columns of the leaderboard, whose first one names variants.
  function tableOf(title, columns, {marked = [], board} = {}) {
    const head = element('tr'), body = element('tbody');
    const marks = new Set(marked.map(String));
    const numeric = columns.map(isNumeric);
    const count = columns.length ? columns[0].values.length : 0;
    const seeds = board && board.find(c => c.name === 'seeds').values;
    const bar = board && intervalBars(board);
    const score = columns.findIndex(c => c.name === 'score');
    const rows = [...Array(count).keys()].map(r => {
      const cells = columns.map((c, i) => cellOf(c, r, numeric[i], i === 0));
      const row = element('tr', {}, ...cells);
      cells.forEach((cell, i) => { if (marks.has(`${r},${i}`)) cell.append('*'); });
      if (!board) return row;
      const style = variantStyles.get(columns[0].values[r]);
      if (seeds[r] === null) row.className = 'heuristic';
      else if (style) {
        cells[0].prepend(swatch(style));
        const paint = () => row.style.setProperty('--mark', colourOf(style));
        paint();
        repaints.push(paint);
      }
      if (score >= 0) cells[score].append(bar(r));
      return row;
    });
    body.append(...rows);
    const headings = columns.map((c, i) => {
      const button = element('button', {type: 'button'}, c.heading);
      const heading = element('th', {scope: 'col', class: numeric[i] && 'n'}, button);
      button.addEventListener('click', () => {
        const order = heading.getAttribute('aria-sort');
        const descending = order ? order === 'ascending' : numeric[i];
        headings.forEach(th => th.removeAttribute('aria-sort'));
        heading.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
        body.append(...sorted(c.values, descending).map(r => rows[r]));
      });
      return heading;
    });
    head.append(...headings);
    return element('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title},
                   element('table', {class: board ? 'board' : undefined}, element('caption', {}, title),
                           element('thead', {}, head), body));
  }
  /// The indices of values in order; those that are missing are always last.
  function sorted(values, descending) {
    const missing = r => values[r] === null || values[r] === '';
    const compare = (a, b) => typeof a === 'number' && typeof b === 'number'
      ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true});
    return [...values.keys()].sort((a, b) => missing(a) || missing(b) ? missing(a) - missing(b)
      : (descending ? -1 : 1) * compare(values[a], values[b]));
  }

  const openForPrint = [];  // short tables, which paper shows
  /// A <details> that builds its table when it is opened.
  function dataTable(title, columns, open, marked = []) {
    const rows = columns.length ? columns[0].values.length : 0;
    const details = element('details', {class: 'data'},
                            element('summary', {}, `Table: ${title} (${rows} rows)`));
    let built = false;
    const build = () => {
      if (built) return;
      built = true;
      const table = tableOf(title, columns, {marked});
      table.classList.add('tall');
      details.append(table);
    };
    details.addEventListener('toggle', build);
    if (open && rows <= 200) {
      build();
      details.open = true;
    }
    if (rows <= 60) openForPrint.push({details, build});
    return details;
  }

  // ---------------------------------------------------------------------------------------------
  // Charts.

  const charts = [];
  let wanted = 0;  // charts that should be drawn

  /// Draws the interval of each point that has one.
  const whiskers = {
    id: 'whiskers',
    afterDatasetsDraw(chart) {
      const {ctx, scales: {y}, chartArea} = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(chartArea.left, chartArea.top, chartArea.width, chartArea.height);
      ctx.clip();
      chart.data.datasets.forEach((dataset, i) => {
        if (!chart.isDatasetVisible(i) || !dataset.whiskers) return;
        ctx.strokeStyle = chart.config.type === 'bar' ? theme().fg : dataset.borderColor;
        ctx.lineWidth = 1.4;
        chart.getDatasetMeta(i).data.forEach((point, j) => {
          if (!dataset.whiskers(j)) return;
          const {low, high} = dataset.data[j];
          if (!finite(low) || !finite(high)) return;
          const a = y.getPixelForValue(Math.max(low, y.min)), b = y.getPixelForValue(Math.min(high, y.max));
          ctx.beginPath();
          ctx.moveTo(point.x, a);
          ctx.lineTo(point.x, b);
          if (low >= y.min) { ctx.moveTo(point.x - 4, a); ctx.lineTo(point.x + 4, a); }
          if (high <= y.max) { ctx.moveTo(point.x - 4, b); ctx.lineTo(point.x + 4, b); }
          ctx.stroke();
        });
      });
      ctx.restore();
    },
  };
  /// Writes the name of a series beside its only point, where there is room.
  const names = {
    id: 'names',
    afterDatasetsDraw(chart) {
      const {ctx, chartArea} = chart;
      const single = chart.data.datasets.filter(d => d.label);
      if (single.length < 2 || single.some(d => d.data.length > 1) || chartArea.width < 300) return;
      const taken = chart.data.datasets.map((_, i) => chart.getDatasetMeta(i).data[0]).filter(Boolean)
        .map(p => ({x: p.x - 5, y: p.y - 5, w: 10, h: 10}));
      ctx.save();
      ctx.font = '11px system-ui, sans-serif';
      ctx.textBaseline = 'middle';
      chart.data.datasets.forEach((dataset, i) => {
        const point = chart.getDatasetMeta(i).data[0];
        if (!point || !dataset.label || !chart.isDatasetVisible(i)) return;
        const width = ctx.measureText(dataset.label).width;
        for (const [dx, dy] of [[9, 0], [-9 - width, 0], [9, -12], [9, 12], [-9 - width, -12], [-9 - width, 12]]) {
          const box = {x: point.x + dx, y: point.y + dy - 7, w: width, h: 14};
          if (box.x < chartArea.left || box.x + box.w > chartArea.right + 4) continue;
          if (taken.some(t => t.x < box.x + box.w && box.x < t.x + t.w && t.y < box.y + box.h && box.y < t.y + t.h)) continue;
          taken.push(box);
          ctx.fillStyle = theme().fg;
          ctx.fillText(dataset.label, box.x, point.y + dy);
          break;
        }
      });
      ctx.restore();
    },
  };

  /// A chart of series {label, points: [{x, y, low, high}], style, band}. `spec`: x and y (titles),
  /// logX, logY, bars (x holds categories), limits, markers.
  class Plot {
    constructor(spec, series) {
      this.spec = spec;
      this.series = series;
      this.hidden = new Set();
      this.canvas = element('canvas', {role: 'img', 'aria-label':
        `${spec.title}: ${spec.y} against ${spec.x}, ${series.length} series. The table below holds the values.`});
      this.box = element('div', {class: 'plot'}, this.canvas);
      this.notes = element('p', {class: 'facts'});
      this.legend = element('div', {class: 'legend', role: 'group', 'aria-label': 'Series shown'});
      this.figure = element('figure', {class: spec.wide ? 'wide' : undefined},
                            element('figcaption', {}, spec.title), this.box);
      if (series.length > 1 && !spec.noLegend) this.figure.append(this.legend);
      this.figure.append(this.notes);
      this.makeLegend();
      charts.push(this);
      ++wanted;
    }

    makeLegend() {
      this.buttons = this.series.map((s, i) => {
        const button = element('button', {type: 'button', 'aria-pressed': 'true',
                                          title: 'Click: show or hide. Double click: show only this.'},
                               swatch(s.style), element('span', {}, s.label));
        button.addEventListener('click', () => this.toggle(i));
        button.addEventListener('dblclick', () => this.only(i));
        return button;
      });
      this.legend.append(...this.buttons);
      if (this.series.length > 3) {
        const all = element('button', {type: 'button', class: 'all'}, 'all / none');
        all.addEventListener('click', () => {
          this.hidden = this.hidden.size ? new Set() : new Set(this.series.map(s => s.label));
          this.changed();
        });
        this.legend.append(all);
      }
    }
    toggle(i) {
      const label = this.series[i].label;
      if (!this.hidden.delete(label)) this.hidden.add(label);
      this.changed();
    }
    only(i) {
      this.hidden = new Set(this.series.map(s => s.label).filter((_, j) => j !== i));
      this.changed();
    }
    press() {
      this.buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(!this.hidden.has(this.series[i].label))));
    }
    changed() {
      this.press();
      this.draw();
      if (this.onChange) this.onChange(this.hidden);
    }

    /// Limits of the y axis: if a few series are far outside of what the others do, such as those
    /// of a run that diverged, they leave the chart and do not flatten it.
    limits(shown) {
      const {spec} = this;
      if (spec.limits) return {min: spec.limits[0], max: spec.limits[1], left: []};
      const positive = y => finite(y) && (!spec.logY || y > 0);
      const ends = shown.map(s => {
        const ys = s.points.flatMap(p => [p.y]).filter(positive);
        return {label: s.label, min: Math.min(...ys), max: Math.max(...ys), first: ys[0]};
      }).filter(e => finite(e.max));
      if (!ends.length) return {left: []};
      let max = Math.max(...ends.map(e => e.max)), min = Math.min(...ends.map(e => e.min));
      const left = [];
      if (spec.falls || (!spec.logY && !spec.bars)) {
        // A loss begins near its largest value; others, at most a few times the middle of all.
        const usual = spec.falls ? 1.25 * Math.max(median(ends.map(e => e.first)), median(ends.map(e => e.max)))
                                 : 6 * median(ends.map(e => e.max));
        if (usual > 0 && max > 1.6 * usual) {
          left.push(...ends.filter(e => e.max > usual));
          max = Math.max(usual, ...ends.filter(e => e.max <= usual).map(e => e.max));
        }
      }
      // Intervals belong to the picture unless they are far wider than it.
      const room = max - min || Math.abs(max) || 1;
      const widths = shown.flatMap(s => s.points.map(p => p.high - p.low)).filter(finite);
      const reach = Math.max(0.35 * room, 1.5 * (median(widths) || 0));
      const top = spec.logY ? 3 * max : max + reach, bottom = spec.logY ? min / 3 : min - reach;
      for (const s of shown)
        for (const p of s.points) {
          if (finite(p.high) && p.high <= top) max = Math.max(max, p.high);
          if (finite(p.low) && p.low >= bottom) min = Math.min(min, p.low);
        }
      if (spec.logY) return {min: min / 1.25, max: max * 1.25, left};
      if (spec.bars || (min >= 0 && min < 0.5 * max)) min = Math.min(min, 0);
      else min -= 0.06 * room;
      return {min, max: max + 0.04 * (max - min), left};
    }

    datasets(shown) {
      const {spec} = this;
      const out = [];
      for (const s of shown) {
        const colour = colourOf(s.style);
        const points = s.points.filter(p => (spec.bars || finite(p.x)) && finite(p.y) &&
          (!spec.logX || p.x > 0) && (!spec.logY || p.y > 0));
        if (s.band && shown.length <= 16 && points.some(p => finite(p.low) && p.high > p.low)) {
          const edge = {borderWidth: 0, pointRadius: 0, pointHitRadius: 0, showLine: true, tooltip: false};
          out.push({...edge, data: points.map(p => ({x: p.x, y: finite(p.low) ? p.low : p.y}))});
          out.push({...edge, data: points.map(p => ({x: p.x, y: finite(p.high) ? p.high : p.y})),
                    fill: '-1', backgroundColor: alpha(colour, (isDark() ? 0.22 : 0.16) * (shown.length > 8 ? 0.6 : 1))});
        }
        const many = points.length > 40;
        // Bars of variants have their colours.
        const bars = spec.barStyles && points.map(p => colourOf(spec.barStyles.get(p.x)));
        out.push({
          label: s.label, data: points, borderColor: bars || colour,
          backgroundColor: bars ? bars.map(c => alpha(c, 0.75)) : spec.bars ? alpha(colour, 0.75) : colour,
          maxBarThickness: 70,
          borderDash: s.style.dash, borderWidth: s.thin ? 1 : s.style.theory ? 1.6 : 2,
          showLine: !spec.points, spanGaps: true, tension: 0,
          pointStyle: s.style.marker, pointHoverRadius: 6, pointHitRadius: 8,
          pointRadius: s.style.theory || s.thin ? 0 : many ? c => marked(c.dataIndex, points.length) ? 3.5 : 0 : 4,
          whiskers: !s.band && (j => !many || marked(j, points.length)),
          pointBorderWidth: /cross|star/.test(s.style.marker || '') ? 2 : 1,
        });
      }
      return out;
    }

    draw() {
      const {spec} = this;
      const t = theme();
      const shown = this.series.filter(s => !this.hidden.has(s.label));
      const limits = this.limits(shown);
      this.notes.textContent = [
        ...(limits.left || []).map(e => `${e.label} leaves the chart (up to ${format(e.max, 3)}).`).slice(0, 4),
        ...(spec.facts || [])].join(' ');
      const axis = (title, log) => ({
        type: log ? 'logarithmic' : 'linear',
        title: {display: true, text: title, color: t.dim, font: {size: 12}},
        grid: {color: t.grid, tickColor: t.grid, borderColor: t.grid},
        ticks: {color: t.dim, maxRotation: 0, includeBounds: false, autoSkipPadding: 14, font: {size: 11},
                callback: log ? logTick : value => tick(value)},
      });
      const categories = spec.bars ? [...new Set(shown.flatMap(s => s.points.map(p => p.x)))] : [];
      const x = spec.bars
        ? {...axis(spec.x), type: 'category', labels: categories, grid: {display: false},
           ticks: {color: t.dim, font: {size: 11}, maxRotation: 90, autoSkip: categories.length > 24,
                   callback: value => shortName(categories[value])}}
        : {...axis(spec.x, spec.logX), ...xLimits(shown, spec.logX)};
      const options = {
        animation: false, parsing: false, normalized: false, responsive: true, maintainAspectRatio: false,
        interaction: {mode: 'nearest', intersect: false, axis: 'xy'},
        layout: {padding: {right: 10, top: 6}},
        scales: {x, y: {...axis(spec.y, spec.logY), min: limits.min, max: limits.max}},
        plugins: {
          legend: {display: false},
          tooltip: {
            filter: item => item.dataset.tooltip !== false,
            callbacks: {
              title: items => items.length ? items[0].dataset.label || '' : '',
              label: item => {
                const p = item.raw;
                const range = finite(p.low) && finite(p.high) && p.low !== p.high
                  ? ` (${format(p.low)} to ${format(p.high)})` : '';
                return [`${spec.x}: ${format(p.x)}`, `${spec.y}: ${format(p.y)}${range}`];
              },
            },
          },
        },
      };
      const type = spec.bars ? 'bar' : 'scatter';
      if (this.chart) {
        this.chart.options = options;
        this.chart.data.datasets = this.datasets(shown);
        this.chart.update('none');
      } else {
        this.chart = new Chart(this.canvas, {type, data: {datasets: this.datasets(shown)}, options,
                                             plugins: [whiskers, names]});
      }
      this.canvas.dataset.drawn = this.chart.data.datasets.length;
    }
  }
  /// Whether a point of a long curve has a marker and an interval: every few points.
  const marked = (index, count) => index % Math.ceil(count / 8) === Math.floor(count / 16);
  /// The beginning and the end of a long name.
  const shortName = name => name.length > 26 ? `${name.slice(0, 11)}…${name.slice(-13)}` : name;
  function logTick(value) {
    const mantissa = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
    const decades = Math.log10(this.max / this.min);
    const near = m => Math.abs(mantissa - m) < 1e-6;
    return near(1) || (decades < 2.5 && (near(2) || near(5))) ||
           (decades < 0.7 && Math.abs(mantissa - Math.round(mantissa)) < 1e-6) ? tick(value) : null;
  }
  function xLimits(series, log) {
    const xs = series.flatMap(s => s.points.map(p => p.x)).filter(x => finite(x) && (!log || x > 0));
    if (!xs.length) return {};
    const min = Math.min(...xs), max = Math.max(...xs);
    if (log) return {min: min / 1.15, max: max * 1.15};
    if (min === max) return {};
    return min >= 0 && min < 0.3 * max ? {min: 0, max: max * 1.02}
                                       : {min: min - 0.06 * (max - min), max: max + 0.06 * (max - min)};
  }

  // ---------------------------------------------------------------------------------------------
  // Learning curves: means and bands over the seeds of each variant.

  function choice(legend, name, options, initial, onChange) {
    const set = element('fieldset', {}, element('legend', {}, legend));
    for (const [value, text] of options) {
      const input = element('input', {type: 'radio', name, value});
      input.checked = value === initial;
      input.addEventListener('change', () => onChange(value));
      set.append(element('label', {}, input, text));
    }
    return set;
  }

  /// The mean curve of runs of a variant, and the lowest and highest of them.
  function meanCurve(runs, split, quantity, axis) {
    const lists = runs.map(r => r[split]).filter(c => c.step.length);
    const last = Math.max(...lists.map(c => c.step[c.step.length - 1]));
    const steps = [...new Set(lists.flatMap(c => c.step))].sort((a, b) => a - b);
    const points = [];
    const at = lists.map(() => 0);
    for (const step of steps) {
      const ys = [], xs = [];
      lists.forEach((c, i) => {
        while (at[i] < c.step.length && c.step[at[i]] < step) ++at[i];
        const ended = at[i] >= c.step.length && step <= last && runs[i].status !== 'running';
        const j = at[i] < c.step.length && c.step[at[i]] === step ? at[i] : ended ? c.step.length - 1 : -1;
        if (j < 0) return;
        if (finite(c[quantity][j])) ys.push(c[quantity][j]);
        if (finite(c.seconds[j]) && !ended) xs.push(c.seconds[j]);
      });
      const mean = v => v.reduce((a, b) => a + b, 0) / v.length;
      const x = axis === 'step' ? step : mean(xs);
      if (ys.length && finite(x))
        points.push({x, y: mean(ys), low: Math.min(...ys), high: Math.max(...ys), step});
    }
    return points;
  }

  function drawCurves() {
    const place = document.getElementById('curve-charts');
    if (!place) return;
    if (!data.curves.length) {
      place.append(element('p', {class: 'note'}, 'No run has written a record yet.'));
      return;
    }
    const state = {axis: 'step', split: data.curves.some(c => c.validation.step.length) ? 'validation' : 'train',
                   scale: 'linear'};
    const byVariant = data.variants.map((label, i) =>
      ({label, runs: data.curves.filter(c => c.variant === i)})).filter(v => v.runs.length);
    // A run that failed has a line of its own, and no part in the mean.
    const failed = run => /diverged|crashed|failed|memory/.test(run.status);
    const seriesOf = quantity => byVariant.flatMap(v => {
      const style = variantStyles.get(v.label);
      const curve = runs => meanCurve(runs, state.split, quantity, state.axis);
      const sound = v.runs.filter(r => !failed(r));
      return [...(sound.length ? [{label: v.label, style, band: true, points: curve(sound)}] : []),
              ...v.runs.filter(failed).map(r => ({
                label: `${v.label}, seed ${r.seed}: ${r.status}`, style: {...style, dash: [1, 3]}, thin: true,
                points: curve([r])}))];
    });
    const plots = ['accuracy', 'loss'].map(quantity => {
      const plot = new Plot({}, seriesOf(quantity));
      plot.quantity = quantity;
      plot.table = element('div');
      plot.figure.append(plot.table);
      return plot;
    });
    const first = 12;
    if (byVariant.length > 16) {  // the best, as the leaderboard is sorted
      for (const plot of plots)
        plot.hidden = new Set(plot.series.map(s => s.label)
          .filter(label => !byVariant.slice(0, first).some(v => label === v.label || label.startsWith(`${v.label}, seed `))));
      for (const plot of plots) plot.press();
      place.append(element('p', {class: 'note'}, `The first ${first} of ${byVariant.length} variants are shown; the names below the charts show others.`));
    }
    const update = () => {
      for (const plot of plots) {
        const {quantity} = plot;
        plot.series = seriesOf(quantity);
        const values = plot.series.flatMap(s => s.points.map(p => p.y));
        const split = state.split === 'train' ? 'Training' : 'Validation';
        plot.spec = {
          title: `${split} ${quantity} by ${state.axis === 'step' ? 'step' : 'seconds'}`,
          x: state.axis === 'step' ? 'step' : 'seconds of training and evaluation', y: quantity,
          logY: state.scale === 'log', falls: quantity === 'loss',
          limits: quantity === 'accuracy' && state.scale === 'linear'
            ? [0, Math.min(1, 1.08 * Math.max(0.05, ...values.filter(finite)))] : undefined,
        };
        plot.figure.querySelector('figcaption').textContent = plot.spec.title;
        plot.canvas.setAttribute('aria-label', `${plot.spec.title}, ${plot.series.length} variants. The table below holds the values.`);
        plot.draw();
        const table = curveTable(plot.spec, plot.series);
        plot.table.replaceChildren(table);
      }
    };
    for (const plot of plots)
      plot.onChange = hidden => plots.filter(p => p !== plot).forEach(p => {
        p.hidden = new Set(hidden);
        p.press();
        p.draw();
      });
    const set = key => value => { state[key] = value; update(); };
    const timed = data.curves.some(c => c.train.seconds.some(finite) || c.validation.seconds.some(finite));
    place.append(
      element('div', {class: 'controls'},
        choice('Split', 'split', [['validation', 'Validation'], ['train', 'Training']], state.split, set('split')),
        timed ? choice('Against', 'axis', [['step', 'By step'], ['seconds', 'By seconds']], state.axis, set('axis')) : '',
        choice('Scale', 'scale', [['linear', 'Linear'], ['log', 'Logarithmic']], state.scale, set('scale'))),
      element('div', {class: 'charts'}, ...plots.map(p => p.figure)));
    update();
  }
  /// A row for each curve, with at most 8 steps.
  function curveTable(spec, series) {
    const steps = [...new Set(series.flatMap(s => s.points.map(p => p.step)))].sort((a, b) => a - b);
    const columns = Math.min(8, steps.length);
    const kept = [...Array(columns).keys()].map(i => steps[Math.ceil((i + 1) * steps.length / columns) - 1]);
    const text = p => !p ? null : p.low < p.high ? `${format(p.y, 3)} (${format(p.low, 3)} to ${format(p.high, 3)})` : p.y;
    const at = series.map(s => new Map(s.points.map(p => [p.step, p])));
    return dataTable(spec.title, [
      {heading: 'variant', values: series.map(s => s.label)},
      ...kept.map(step => ({heading: `step ${format(step)}`, digits: 3, values: at.map(points => text(points.get(step)))}))]);
  }

  // ---------------------------------------------------------------------------------------------
  // Charts of tables.

  function column(table, name) {
    return table.columns.find(c => c.name === name);
  }
  /// The rows of a table by the values of the columns `series`: [label, indices]. Columns with a
  /// single value are not part of labels.
  function groupsOf(table, names) {
    const columns = names.map(name => column(table, name)).filter(c => c.values.some(v => v !== c.values[0]));
    const groups = new Map();
    const count = table.columns.length ? table.columns[0].values.length : 0;
    for (let r = 0; r < count; ++r) {
      const label = columns.map(c => typeof c.values[r] === 'number'
        ? `${c.heading} ${format(c.values[r])}` : c.values[r]).filter(v => v !== null && v !== '').join(' · ');
      if (!groups.has(label)) groups.set(label, []);
      groups.get(label).push(r);
    }
    return [...groups];
  }

  /// The charts of a table: with many series, one for each value of a column that tells them apart.
  function tableCharts(table, chart) {
    const most = 12;
    if (chart.colour) return [heatMaps(table, chart)];
    if (chart.end) return [timeline(table, chart)];
    if (groupsOf(table, chart.series).length <= most) return [tableChart(table, chart)];
    const values = name => [...new Set(column(table, name).values)];
    const split = chart.series.slice(1).filter(name => values(name).length > 1 && values(name).length <= most)
      .sort((a, b) => values(a).length - values(b).length)[0];
    if (!split) return [tableChart(table, chart)];
    const {heading} = column(table, split);
    return values(split).flatMap(value => {
      const rows = column(table, split).values.flatMap((v, r) => v === value ? [r] : []);
      const part = {...table, columns: table.columns.map(c => ({...c, values: rows.map(r => c.values[r])}))};
      const name = value === null || value === '' ? `${heading}: none`
        : typeof value === 'number' ? `${heading} ${format(value)}` : value;
      return tableCharts(part, {...chart, title: `${chart.title}, ${name}`, facts: [], series: chart.series.filter(n => n !== split)});
    });
  }

  function tableChart(table, chart) {
    const x = column(table, chart.x), y = column(table, chart.y);
    const low = chart.low && column(table, chart.low), high = chart.high && column(table, chart.high);
    const groups = groupsOf(table, chart.series);
    const looks = stylesFor(groups.map(([label]) => label).filter(label => !isTheory(label)));
    const series = [];
    const theories = new Map();
    for (const [label, rows] of groups) {
      const points = rows.map(r => ({x: chart.bars ? String(x.values[r]) : x.values[r], y: y.values[r],
                                     low: low && low.values[r], high: high && high.values[r]}))
        .filter(p => p.x !== null && finite(p.y));
      if (!points.length) continue;
      if (!chart.bars) points.sort((a, b) => a.x - b.x);
      const style = isTheory(label) ? {theory: true, dash: [3, 3]} : looks.get(label);
      series.push({label: label || y.heading, points, style: style || {colour: 0, dash: [], marker: 'circle'}});
      if (!chart.theory) continue;
      const values = column(table, chart.theory).values;
      const line = rows.map(r => ({x: x.values[r], y: values[r]})).filter(p => finite(p.x) && finite(p.y))
        .sort((a, b) => a.x - b.x);
      if (line.length) theories.set(JSON.stringify(line), {label, line, style});
    }
    for (const {label, line, style} of theories.values())
      series.push({label: theories.size === 1 || !label ? 'theory' : `${label} · theory`, points: line, thin: true,
                   style: theories.size === 1 ? {theory: true, dash: [3, 3]} : {...style, dash: [2, 3]}});
    // More than one y at the same x is a cloud of points, not a curve.
    const cloud = series.some(s => new Set(s.points.map(p => p.x)).size < s.points.length);
    if (!series.length) return element('figure', {}, element('figcaption', {}, chart.title),
                                       element('p', {class: 'note'}, 'There are no values.'));
    const plot = new Plot({title: chart.title, x: x.heading, y: y.heading, logX: chart.log_x, logY: chart.log_y,
                           bars: chart.bars, barStyles: chart.bars && series.length === 1 &&
                             stylesFor(series[0].points.map(p => p.x)), points: cloud && !chart.bars, facts: chart.facts}, series);
    plot.draw();
    const used = [...chart.series, chart.x, chart.y, chart.low, chart.high, chart.theory].filter(Boolean);
    plot.figure.append(dataTable(chart.title, [...new Set(used)].map(name => column(table, name))));
    return plot.figure;
  }

  // Viridis (van der Walt and Smith 2015), perceptually uniform, at eight points.
  const viridis = [[68, 1, 84], [70, 50, 127], [54, 92, 141], [39, 127, 142], [31, 161, 135], [74, 194, 109],
                   [159, 218, 58], [253, 231, 37]];
  function viridisAt(t) {
    const p = Math.min(Math.max(t, 0), 1) * (viridis.length - 1), i = Math.min(Math.floor(p), viridis.length - 2);
    return viridis[i].map((c, k) => Math.round(c + (p - i) * (viridis[i + 1][k] - c)));
  }
  function heatMaps(table, chart) {
    const x = column(table, chart.x), y = column(table, chart.y), colour = column(table, chart.colour);
    const values = colour.values.filter(finite).sort((a, b) => a - b);
    const figure = element('figure', {class: 'wide'}, element('figcaption', {}, chart.title));
    if (!values.length) return figure;
    // The largest few weights may be far above all others: the scale ends where 0.5 % are above it.
    const least = Math.min(0, values[0]);
    const most = values[Math.floor(0.995 * (values.length - 1))] || values[values.length - 1];
    const maps = element('div', {class: 'maps'});
    for (const [label, rows] of groupsOf(table, chart.series)) {
      const xs = rows.map(r => x.values[r]), ys = rows.map(r => y.values[r]);
      const x0 = Math.min(...xs), y0 = Math.min(...ys);
      const step = v => { const u = [...new Set(v)].sort((a, b) => a - b); return u.length > 1 ? u[1] - u[0] : 1; };
      const dx = step(xs), dy = step(ys);
      const width = Math.round((Math.max(...xs) - x0) / dx) + 1, height = Math.round((Math.max(...ys) - y0) / dy) + 1;
      if (width * height > 1 << 20) continue;
      const canvas = element('canvas', {role: 'img', width, height,
        'aria-label': `${chart.title}, ${label}: ${height} rows by ${width} columns. The table below holds the values.`});
      canvas.style.aspectRatio = `${width} / ${height}`;
      const context = canvas.getContext('2d'), image = context.createImageData(width, height);
      const at = new Map();
      rows.forEach((r, i) => {
        const v = colour.values[r];
        if (!finite(v)) return;
        const place = Math.round((ys[i] - y0) / dy) * width + Math.round((xs[i] - x0) / dx);
        at.set(place, v);
        image.data.set([...viridisAt((v - least) / (most - least || 1)), 255], 4 * place);
      });
      context.putImageData(image, 0, 0);
      canvas.dataset.drawn = rows.length;
      ++wanted;
      const caption = element('figcaption', {}, label || chart.title);
      canvas.addEventListener('mousemove', event => {
        const box = canvas.getBoundingClientRect();
        const i = Math.floor((event.clientX - box.left) / box.width * width);
        const j = Math.floor((event.clientY - box.top) / box.height * height);
        caption.textContent = `${y.heading} ${y0 + j * dy}, ${x.heading} ${x0 + i * dx}: ${format(at.get(j * width + i))}`;
      });
      canvas.addEventListener('mouseleave', () => { caption.textContent = label || chart.title; });
      maps.append(element('figure', {}, caption, canvas));
    }
    const bar = element('i');
    bar.style.background = `linear-gradient(90deg, ${viridis.map(c => `rgb(${c})`).join(',')})`;
    figure.append(maps,
      element('div', {class: 'scale'}, format(least, 2), bar, format(most, 2) + (most < values[values.length - 1] ? ' and more' : '')),
      element('p', {class: 'facts'}, `${colour.heading}; rows: ${y.heading}, columns: ${x.heading}.`));
    return figure;
  }

  /// A lane for each y, with spans from x to chart.end in the colours of the series.
  function timeline(table, chart) {
    const begin = column(table, chart.x), end = column(table, chart.end), lane = column(table, chart.y);
    const last = Math.max(...end.values.filter(finite));
    const groups = groupsOf(table, chart.series), looks = stylesFor(groups.map(([label]) => label));
    const lanes = new Map([...new Set(lane.values)].map(name => [name, element('div', {class: 'lane'})]));
    const legend = element('p', {class: 'facts'});
    for (const [label, rows] of groups) {
      legend.append(swatch({...looks.get(label), marker: 'rect'}), ` ${label}   `);
      for (const r of rows) {
        const span = element('i', {title: `${label}: ${format(begin.values[r])} to ${format(end.values[r])} ${end.heading}`});
        span.style.left = `${100 * begin.values[r] / last}%`;
        span.style.width = `${100 * (end.values[r] - begin.values[r]) / last}%`;
        const paint = () => { span.style.background = colourOf(looks.get(label)); };
        paint();
        repaints.push(paint);
        lanes.get(lane.values[r]).append(span);
      }
    }
    const grid = element('div', {class: 'timeline', role: 'img', 'aria-label': `${chart.title}. The table below holds the values.`});
    for (const [name, spans] of lanes) grid.append(element('span', {}, name), spans);
    const axis = element('div', {class: 'axis'});
    for (let i = 0; i <= 4; ++i) axis.append(element('span', {}, format(last * i / 4, 3)));
    grid.append(element('span', {}, begin.heading), axis);
    const used = [...chart.series, chart.y, chart.x, chart.end];
    return element('figure', {class: 'wide'}, element('figcaption', {}, chart.title), grid, legend,
                   dataTable(chart.title, used.map(name => column(table, name))));
  }

  // ---------------------------------------------------------------------------------------------

  // Of the runs; without columns that have no value, or that repeat the first.
  for (const place of document.querySelectorAll('[data-whole]')) {
    const {name, title, columns} = data.tables[place.dataset.whole];
    const shown = columns.filter((c, i) => c.values.some((v, r) => v !== null && (i === 0 || v !== columns[0].values[r])));
    place.append(tableOf(title, shown, {board: name === 'leaderboard' ? columns : undefined}));
  }
  drawCurves();
  for (const place of document.querySelectorAll('[data-charts]')) {
    const table = data.tables[place.dataset.charts];
    for (const chart of table.charts) place.append(...tableCharts(table, chart));
  }
  for (const place of document.querySelectorAll('[data-table]')) {
    const table = data.tables[place.dataset.table];
    const shown = chart => new Set([...chart.series, chart.x, chart.y, chart.low, chart.high, chart.theory, chart.end].filter(Boolean));
    if (table.charts.some(chart => !chart.colour && shown(chart).size === table.columns.length)) continue;
    place.append(dataTable(table.title, table.columns, 'open' in place.dataset, table.marked));
  }

  function repaint() {
    for (const paint of repaints) paint();
    for (const plot of charts) plot.draw();
  }
  dark.addEventListener('change', repaint);
  let opened = [];
  addEventListener('beforeprint', () => {
    printing = true;
    opened = openForPrint.filter(({details}) => !details.open && details.isConnected);
    for (const {details, build} of opened) {
      build();
      details.open = true;
    }
    repaint();
    for (const plot of charts) plot.chart.resize();
  });
  addEventListener('afterprint', () => {
    printing = false;
    for (const {details} of opened) details.open = false;
    for (const plot of charts) plot.chart.resize();
    repaint();
  });
  document.documentElement.dataset.charts = `${document.querySelectorAll('canvas[data-drawn]').length}/${wanted}`;
})();
