// Makes the tables of a report from its block of data, and what can be clicked in its charts.
'use strict';
(async () => {
  /// The data of a large page are compressed, as browsers from 2023 on can read them.
  async function dataOf(text) {
    if (text.startsWith('{')) return text;
    const bytes = new Blob([Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
    return new Response(bytes.stream().pipeThrough(new DecompressionStream('deflate'))).text();
  }
  const data = JSON.parse(await dataOf(document.getElementById('data').textContent));

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
    if (!finite(value)) return String(value);
    const size = Math.abs(value), all = 10 ** digits;
    if (Number.isInteger(value) ? size < Math.max(1e9, all) : size >= all && size < 1e7)
      return Math.round(value).toLocaleString('en').replace(/,/g, '\u202f');
    const short = Number(value.toPrecision(digits));
    return size >= 1e9 || size < 1e-4 ? short.toExponential() : String(short);
  }

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
    return element(first ? 'th' : 'td', {class: numeric ? 'n' : first && text.length > 40 && 'wrap', scope: first && 'row'}, !long ? text
      : element('details', {class: 'long'}, element('summary', {}, `${[...text].slice(0, 30).join('')}…`), text));
  }
  /// A table of columns {name, heading, digits, values}, which a click on a heading sorts. Cells [row, column]
  /// in `marked` have an asterisk, those in `best` are bold. `board`: all columns of the leaderboard, whose first one names variants.
  function tableOf(title, columns, {marked = [], best = [], board} = {}) {
    const head = element('tr'), body = element('tbody');
    const marks = new Set(marked.map(String)), bold = new Set(best.map(String));
    const numeric = columns.map(isNumeric);
    const count = columns.length ? columns[0].values.length : 0;
    const seeds = board && board.find(c => c.name === 'seeds').values;
    const bar = board && !board.some(c => c.name === 'metric') && intervalBars(board);  // of one metric
    const score = columns.findIndex(c => c.name === 'score');
    const rows = [...Array(count).keys()].map(r => {
      const cells = columns.map((c, i) => cellOf(c, r, numeric[i], i === 0));
      const row = element('tr', {}, ...cells);
      cells.forEach((cell, i) => {
        if (marks.has(`${r},${i}`)) cell.append('*');
        if (bold.has(`${r},${i}`)) cell.classList.add('best');
      });
      if (!board) return row;
      const variant = data.variants.indexOf(columns[0].values[r]);
      if (seeds[r] === null) row.className = 'heuristic';
      else if (variant >= 0) {
        cells[0].prepend(element('i', {class: 'swatch', 'aria-hidden': 'true'}));
        row.style.setProperty('--mark', `var(--h${data.hues[variant]})`);
      }
      if (score >= 0 && bar) cells[score].append(bar(r));
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
                   element('table', {}, element('caption', {}, title),
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

  const openForPrint = [];  // short tables of results, which paper shows
  /// A <details> that builds its table when it is opened.
  function dataTable(summary, title, columns, {open, print, ...table} = {}) {
    const rows = columns.length ? columns[0].values.length : 0;
    const details = element('details', {class: 'data'}, element('summary', {}, `${summary} (${rows} ${rows === 1 ? 'row' : 'rows'})`));
    let built = false;
    const build = () => {
      if (built) return;
      built = true;
      details.append(tableOf(title, columns, table));
      details.lastChild.classList.add('tall');
    };
    details.addEventListener('toggle', build);
    if (open && rows <= 200) {
      build();
      details.open = true;
    }
    if (print && rows <= 60) openForPrint.push({details, build});
    return details;
  }

  // ---------------------------------------------------------------------------------------------
  // Charts.

  /// Shows a series, or hides it, in every view of a figure. Double click or Shift: only this one.
  function toggle(figure, s, only) {
    const keys = [...figure.querySelectorAll('.key')];
    const shown = key => key.getAttribute('aria-pressed') === 'true';
    const alone = only && keys.some(key => key.dataset.s !== s && shown(key));
    for (const key of keys) {
      const show = only ? !alone || key.dataset.s === s : key.dataset.s === s ? !shown(key) : shown(key);
      key.setAttribute('aria-pressed', String(show));
      for (const part of key.closest('svg').querySelectorAll(`g[data-s="${key.dataset.s}"]:not(.key)`))
        part.setAttribute('visibility', show ? 'visible' : 'hidden');
    }
  }
  function addKeys(figure) {
    for (const key of figure.querySelectorAll('.key')) {
      for (const [name, value] of Object.entries({role: 'button', tabindex: 0, 'aria-pressed': 'true'}))
        key.setAttribute(name, value);
      key.addEventListener('click', event => toggle(figure, key.dataset.s, event.shiftKey));
      key.addEventListener('dblclick', () => toggle(figure, key.dataset.s, true));
      key.addEventListener('keydown', event => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        toggle(figure, key.dataset.s, event.shiftKey);
      });
    }
  }

  /// What a point stands for, beside it at once; a title of SVG waits, and has no touch.
  const tip = element('div', {class: 'tip', 'aria-hidden': 'true', hidden: true});
  document.body.append(tip);
  function point(event) {
    const mark = event.target.closest ? event.target.closest('svg g[data-s], svg .p') : null;
    const title = mark && !mark.classList.contains('key') && mark.querySelector(':scope > title');
    tip.hidden = !title || !title.textContent;
    if (tip.hidden) return;
    tip.textContent = title.textContent;
    tip.style.left = `${Math.min(event.pageX + 12, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.pageY + 14}px`;
  }
  addEventListener('pointermove', point);
  addEventListener('pointerdown', point);

  function save(name, url) {
    element('a', {href: url, download: name}).click();
  }
  const fileOf = svg => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  function savePng(name, svg) {
    const image = new Image(), scale = 4;
    image.onload = () => {
      const canvas = element('canvas', {width: scale * svg.viewBox.baseVal.width, height: scale * svg.viewBox.baseVal.height});
      const context = canvas.getContext('2d');
      context.fillStyle = '#ffffff';
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      save(name, canvas.toDataURL('image/png'));
    };
    image.src = fileOf(svg);
  }

  const numbersOf = figure => {
    const {table, columns, rows} = data.numbers[figure.dataset.numbers];
    const whole = data.tables[table];
    return (columns ? columns.map(name => whole.columns.find(c => c.name === name)) : whole.columns)
      .map(c => rows ? {...c, values: rows.map(r => c.values[r])} : c);
  };
  function prepare(figure) {
    addKeys(figure);
    const caption = figure.querySelector('figcaption');
    const picture = () => figure.querySelector('.picture:not([hidden]) svg');
    const button = (text, how) => {
      const out = element('button', {type: 'button', title: `Save this chart as ${text}`}, text);
      out.addEventListener('click', () => how(`${figure.id}.${text.toLowerCase()}`, picture()));
      return out;
    };
    caption.append(element('span', {class: 'save'}, button('SVG', (name, svg) => save(name, fileOf(svg))), button('PNG', savePng)));
    figure.append(dataTable('See the numbers', caption.firstChild.textContent, numbersOf(figure)));
    showView(figure);
  }

  // ---------------------------------------------------------------------------------------------
  // Views of learning curves: all of them change together.

  let view;  // of all curves: validation step linear
  function showView(figure) {
    const all = [...figure.querySelectorAll('[data-view]')];
    const wanted = view && all.find(picture => picture.dataset.view === view.join(' '));
    if (wanted) all.forEach(picture => { picture.hidden = picture !== wanted; });
  }
  function addViews(place, names) {
    view = names[0].split(' ');
    const texts = [['Split', {validation: 'Validation', train: 'Training'}],
                   ['Against', {step: 'By step', seconds: 'By seconds'}],
                   ['Scale', {linear: 'Linear', log: 'Logarithmic'}]];
    const controls = element('div', {class: 'controls'});
    texts.forEach(([legend, choices], i) => {
      const options = Object.entries(choices).filter(([value]) => names.some(name => name.split(' ')[i] === value));
      if (options.length < 2) return;
      controls.append(element('fieldset', {}, element('legend', {}, legend), ...options.map(([value, text]) => {
        const input = element('input', {type: 'radio', name: legend, value, checked: value === view[i]});
        input.addEventListener('change', () => {
          view[i] = value;
          document.querySelectorAll('figure').forEach(showView);
        });
        return element('label', {}, input, text);
      })));
    });
    place.append(controls);
  }

  // ---------------------------------------------------------------------------------------------

  const views = document.getElementById('views');
  if (views) addViews(views, data.views);
  document.querySelectorAll('figure[data-numbers]').forEach(prepare);

  /// What is folded is made when it is opened.
  const folded = [...document.querySelectorAll('[data-folded]')];
  function unfold(details) {
    const i = details.dataset.folded;
    if (data.folded[i] === undefined) return;
    details.insertAdjacentHTML('beforeend', data.folded[i]);
    delete data.folded[i];
    details.querySelectorAll('figure[data-numbers]').forEach(prepare);
  }
  for (const details of folded) {
    details.addEventListener('toggle', () => unfold(details));
    if (details.open) unfold(details);
  }

  // Of the runs; without columns that have no value, or that repeat the first.
  for (const place of document.querySelectorAll('[data-whole]')) {
    const {name, title, columns, best = []} = data.tables[place.dataset.whole];
    const shown = columns.filter((c, i) => c.values.some((v, r) => v !== null && (i === 0 || v !== columns[0].values[r])));
    place.append(tableOf(title, shown, {board: name === 'leaderboard' ? columns : undefined,
                                        best: best.map(([r, c]) => [r, shown.indexOf(columns[c])])}));
  }
  for (const place of document.querySelectorAll('[data-table]')) {
    const table = data.tables[place.dataset.table];
    place.append(dataTable(`Table: ${table.title}`, table.title, table.columns,
                           {...table, open: 'open' in place.dataset, print: true}));
  }

  /// A link to a chart opens what it is in.
  function openTarget() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (!name) return;
    const holds = folded.find(details => (data.folded[details.dataset.folded] || '').includes(`<figure id="${name}"`));
    if (holds) unfold(holds);
    const target = document.getElementById(name);
    if (!target) return;
    for (let at = target.closest('details'); at; at = at.parentElement.closest('details')) at.open = true;
    target.scrollIntoView();
  }
  addEventListener('hashchange', openTarget);
  openTarget();

  let opened = [];
  addEventListener('beforeprint', () => {
    opened = [...document.querySelectorAll('details.panels[data-print]:not([open])')];
    opened.forEach(unfold);
    for (const {details, build} of openForPrint)
      if (!details.open && details.isConnected) {
        build();
        opened.push(details);
      }
    for (const details of opened) details.open = true;
  });
  addEventListener('afterprint', () => { for (const details of opened) details.open = false; });
  document.documentElement.dataset.ready = 'yes';
})();
