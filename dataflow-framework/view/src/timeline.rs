//! The runs of a trace as a picture: a row for each worker, coloured by task (a Gantt chart).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use taskwork::display::{Picture, Unit, count, xml_escaped as escaped};

use crate::{Span, Trace, svg::critical_stroke};

/// The maximum number of rows. Workers after them are not drawn.
const ROWS_MAX: usize = 64;

/// The maximum number of coloured segments in a picture that is published: about 20 bytes each.
const PUBLISHED_SEGMENTS_MAX: usize = 1_000;

/// The maximum number of coloured segments in a picture that is made on request.
const SEGMENTS_MAX: usize = 12_000;

/// The maximum number of underlined runs of the critical path.
const MARKS_MAX: usize = 200;

/// The maximum number of node events in a picture.
const INSTANTS_MAX: usize = 100;

/// The lengths in pixels: the width of the plot and of the names at its left, the height of a row, the margin.
const PLOT_WIDTH: usize = 880;
const NAMES_WIDTH: usize = 190;
const ROW_HEIGHT: usize = 18;
const MARGIN: usize = 14;

/// The width of an entry of the legend.
const LEGEND_WIDTH: usize = 178;

/// The length of a name in the picture, in characters.
const NAME_CHARS_MAX: usize = 22;

/// The colours of the tasks with the most run time. The other tasks share the last one.
const COLOURS: [&str; 8] =
    ["#2563c9", "#d9822b", "#1c7f4c", "#c03040", "#7a4fc4", "#0d9aa8", "#a6457f", "#8a8f98"];

/// The dominant task of each part of a row; `None` if the worker was idle.
type Bins = Vec<Option<usize>>;

impl Trace {
    /// Returns the timeline of all workers as SVG: their dominant task in each part of the time, and marks at the runs of
    /// critical calls.
    pub(crate) fn timeline(&self, critical: &BTreeSet<u64>) -> String {
        self.timeline_of(SEGMENTS_MAX, critical)
    }

    /// Returns the timeline in a size that can be published.
    pub(crate) fn timeline_picture(&self, critical: &BTreeSet<u64>) -> Picture {
        let content = self.timeline_of(PUBLISHED_SEGMENTS_MAX, critical);
        Picture::svg("timeline.svg", "the timeline of the workers", content)
    }

    fn timeline_of(&self, segments_max: usize, critical: &BTreeSet<u64>) -> String {
        let colours = self.colours();
        let mut rows = BTreeMap::<(u16, u16), Vec<&Span>>::new();
        for span in &self.spans {
            rows.entry((span.node, span.worker)).or_default().push(span);
        }
        let omitted_rows = rows.len().saturating_sub(ROWS_MAX);
        let start_us =
            self.spans.iter().map(|span| span.end_us.saturating_sub(span.run_us)).min().unwrap_or(0);
        let end_us = self.spans.iter().map(|span| span.end_us).max().unwrap_or(0).max(start_us + 1);
        let bins = (segments_max / rows.len().clamp(1, ROWS_MAX)).clamp(1, PLOT_WIDTH);
        let legend = self.legend(&colours);
        let shown_rows = rows.len().min(ROWS_MAX);
        let (width, plot_height) = (NAMES_WIDTH + PLOT_WIDTH + 2 * MARGIN, shown_rows * ROW_HEIGHT);
        let legend_rows = legend.len().div_ceil((width - MARGIN) / LEGEND_WIDTH);
        let height = plot_height + 62 + legend_rows * ROW_HEIGHT;
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut marks = Vec::new();
        for (row, ((node, worker), spans)) in rows.iter().take(ROWS_MAX).enumerate() {
            let y = MARGIN + row * ROW_HEIGHT;
            let name = self.nodes.get(usize::from(*node)).map_or("a node", String::as_str);
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "<text x=\"{MARGIN}\" y=\"{}\">{} · {worker}</text>",
                y + 13,
                escaped(&short(name))
            );
            let bins = dominant(spans, &colours, start_us, end_us, bins);
            draw_row(&mut text, &bins, y);
            for span in spans.iter().filter(|span| critical.contains(&span.call)) {
                marks.push((span.run_us, span.end_us, y));
            }
        }
        draw_critical(&mut text, marks, start_us, end_us);
        self.draw_instants(&mut text, start_us, end_us, plot_height);
        let y = MARGIN + plot_height + 16;
        draw_axis(&mut text, end_us - start_us, y);
        let is_marked = !critical.is_empty();
        let caption = self.caption(omitted_rows, is_marked);
        let _ = writeln!(text, "<text x=\"{MARGIN}\" y=\"{}\">{caption}</text>", y + 20);
        draw_legend(&mut text, &legend, width, y + 30);
        text + "</svg>\n"
    }

    /// Returns the position of the colour of each task: those with the most run time have their own.
    fn colours(&self) -> Vec<usize> {
        let mut run_us = vec![0_u64; self.tasks.len()];
        for span in &self.spans {
            if let Some(sum) = run_us.get_mut(usize::from(span.task)) {
                *sum = sum.saturating_add(span.run_us);
            }
        }
        let mut order: Vec<usize> = (0..run_us.len()).collect();
        order.sort_by_key(|task| std::cmp::Reverse(run_us[*task]));
        let mut colours = vec![COLOURS.len() - 1; self.tasks.len()];
        for (colour, task) in order.into_iter().enumerate().take(COLOURS.len() - 1) {
            colours[task] = colour;
        }
        colours
    }

    /// Returns the text of each colour that occurs.
    fn legend(&self, colours: &[usize]) -> Vec<(usize, String)> {
        let mut legend = BTreeMap::new();
        for (task, colour) in self.tasks.iter().zip(colours) {
            let name = if *colour == COLOURS.len() - 1 { "other tasks" } else { task };
            legend.entry(*colour).or_insert_with(|| short(name));
        }
        legend.into_iter().collect()
    }

    fn caption(&self, omitted_rows: usize, is_marked: bool) -> String {
        let mut caption = format!("{} runs", count(self.spans.len() as u64));
        if self.omitted > 0 {
            let _ = write!(caption, "; {} others are not shown", count(self.omitted));
        }
        if omitted_rows > 0 {
            let _ = write!(caption, "; {omitted_rows} further workers are not shown");
        }
        if is_marked {
            caption += "; runs of the critical path are underlined";
        }
        caption
    }

    fn draw_instants(&self, text: &mut String, start_us: u64, end_us: u64, plot_height: usize) {
        let all = self.instants.iter().filter(|instant| (start_us..=end_us).contains(&instant.at_us));
        for instant in all.take(INSTANTS_MAX) {
            let share = (instant.at_us - start_us) as f64 / (end_us - start_us) as f64;
            let x = (NAMES_WIDTH + MARGIN) as f64 + share * PLOT_WIDTH as f64;
            let name = self.nodes.get(usize::from(instant.node)).map_or("a node", String::as_str);
            let _ = writeln!(
                text,
                "<g><title>{}: {}</title><path d=\"M{x:.0},{MARGIN}v{plot_height}\" stroke=\"#c03040\" \
                 stroke-dasharray=\"3 2\"/></g>",
                escaped(name),
                escaped(&instant.what),
            );
        }
    }
}

/// Returns the colour that dominates each of `parts` parts of a row. Times are in units of which each part has as many
/// as the whole has microseconds, so that all are whole numbers.
fn dominant(spans: &[&Span], colours: &[usize], start_us: u64, end_us: u64, parts: usize) -> Bins {
    let part_long = end_us - start_us;
    let units = |us: u64| us.saturating_sub(start_us).saturating_mul(parts as u64);
    let mut times = vec![[0_u64; COLOURS.len()]; parts];
    for span in spans {
        let colour = colours.get(usize::from(span.task)).copied().unwrap_or(COLOURS.len() - 1);
        let (from, to) = (units(span.end_us.saturating_sub(span.run_us)), units(span.end_us));
        let first = usize::try_from(from / part_long).unwrap_or(parts);
        for (part, times) in times.iter_mut().enumerate().skip(first) {
            let begins = part as u64 * part_long;
            if begins >= to {
                break;
            }
            times[colour] += to.min(begins + part_long) - from.max(begins);
        }
    }
    let dominant = |times: [u64; COLOURS.len()]| {
        let idle = part_long.saturating_sub(times.iter().sum());
        let (colour, time) =
            times.into_iter().enumerate().max_by_key(|(_, time)| *time).expect("there are colours");
        (time > 0 && time >= idle).then_some(colour)
    };
    times.into_iter().map(dominant).collect()
}

/// Draws a row: a path for each colour, with a rectangle for each sequence of equal parts.
fn draw_row(text: &mut String, bins: &Bins, y: usize) {
    let width = PLOT_WIDTH as f64 / bins.len() as f64;
    let mut paths = BTreeMap::<usize, String>::new();
    let mut at = 0;
    while at < bins.len() {
        let to = (at..bins.len()).find(|next| bins[*next] != bins[at]).unwrap_or(bins.len());
        if let Some(colour) = bins[at] {
            let x = (NAMES_WIDTH + MARGIN) as f64 + at as f64 * width;
            let long = (to - at) as f64 * width;
            let path = paths.entry(colour).or_default();
            let _ = write!(path, "M{x:.1},{}h{long:.1}v{}h-{long:.1}z", y + 2, ROW_HEIGHT - 4);
        }
        at = to;
    }
    for (colour, path) in paths {
        let _ = writeln!(text, "<path fill=\"{}\" d=\"{path}\"/>", COLOURS[colour]);
    }
}

/// Underlines the longest runs of the critical path, each with its run time, its end and the upper edge of its row.
fn draw_critical(text: &mut String, mut marks: Vec<(u64, u64, usize)>, start_us: u64, end_us: u64) {
    if marks.is_empty() {
        return;
    }
    marks.sort_unstable_by(|a, b| b.cmp(a));
    marks.truncate(MARKS_MAX);
    let scale = PLOT_WIDTH as f64 / (end_us - start_us) as f64;
    let _ = write!(text, "<g><title>critical path</title><path fill=\"none\" {} d=\"", critical_stroke());
    for (run_us, ended_us, y) in marks {
        let begun_us = ended_us.saturating_sub(run_us).saturating_sub(start_us);
        let x = (NAMES_WIDTH + MARGIN) as f64 + begun_us as f64 * scale;
        let _ = write!(text, "M{x:.1},{}h{:.1}", y + ROW_HEIGHT - 1, (run_us as f64 * scale).max(1.0));
    }
    *text += "\"/></g>\n";
}

/// Draws the times below the rows.
fn draw_axis(text: &mut String, us: u64, y: usize) {
    const PARTS: usize = 4;
    for part in 0..=PARTS {
        let (x, anchor) = (NAMES_WIDTH + MARGIN + part * PLOT_WIDTH / PARTS, ["start", "middle", "end"]);
        let anchor = anchor[usize::from(part > 0) + usize::from(part == PARTS)];
        let seconds = us as f64 * 1e-6 * part as f64 / PARTS as f64;
        let time = if part == 0 { "0".to_owned() } else { Unit::Seconds.format(Some(&seconds.into())) };
        let _ = writeln!(
            text,
            "<path d=\"M{x},{}v4\" stroke=\"#777777\"/><text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{time}</text>",
            y - 16
        );
    }
}

fn draw_legend(text: &mut String, legend: &[(usize, String)], width: usize, y: usize) {
    let columns = (width - MARGIN) / LEGEND_WIDTH;
    for (at, (colour, name)) in legend.iter().enumerate() {
        let (x, y) = (MARGIN + at % columns * LEGEND_WIDTH, y + at / columns * ROW_HEIGHT);
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
            COLOURS[*colour],
            x + 17,
            y + 11,
            escaped(name)
        );
    }
}

fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taskwork::display::JobDisplay;

    use super::{COLOURS, ROWS_MAX};
    use crate::{Instant, Span, Trace};

    fn span(task: u16, worker: u16, end_us: u64, run_us: u64) -> Span {
        Span { call: 0, task, node: 0, worker, end_us, transfer_us: 0, wait_us: 0, run_us, is_well: true }
    }

    fn trace(spans: Vec<Span>) -> Trace {
        let tasks = vec!["read <T>".to_owned(), "sort".to_owned()];
        Trace { tasks, nodes: vec!["n-1".to_owned()], spans, ..Trace::default() }
    }

    #[test]
    fn timeline_has_row_per_worker_with_its_dominant_tasks() {
        let mut trace = trace(vec![span(0, 0, 500, 500), span(1, 0, 1_000, 500), span(1, 1, 1_000, 250)]);
        trace.instants.push(Instant { at_us: 500, node: 0, what: "lost".to_owned() });
        let svg = trace.timeline(&BTreeSet::new());
        assert!(svg.contains(">n-1 · 0</text>") && svg.contains(">n-1 · 1</text>"), "{svg}");
        // `sort` has more run time, so it has the first colour.
        let (first, second) = (COLOURS[0], COLOURS[1]);
        assert!(svg.contains(&format!("fill=\"{second}\" d=\"M204.0,16h440.0v14h-440.0z\"")), "{svg}");
        assert!(svg.contains(&format!("fill=\"{first}\" d=\"M644.0,16h440.0v14h-440.0z\"")), "{svg}");
        assert!(svg.contains(&format!("fill=\"{first}\" d=\"M864.0,34h220.0v14h-220.0z\"")), "{svg}");
        assert!(svg.contains("read &lt;T&gt;") && svg.contains("<title>n-1: lost</title>"), "{svg}");
        assert!(svg.contains(">1.00 ms</text>") && svg.contains("3 runs"), "{svg}");
    }

    #[test]
    fn timeline_of_many_runs_is_bounded_and_accepted() {
        let spans =
            (0..50_000_u64).map(|at| span((at % 2) as u16, (at % 90) as u16, at * 7 + 5, 5 + at % 11));
        let trace = trace(spans.collect());
        let picture = trace.timeline_picture(&BTreeSet::new());
        assert!(picture.content.len() < 40_000, "{}", picture.content.len());
        assert!(
            trace.timeline(&BTreeSet::new()).len() < 400_000,
            "{}",
            trace.timeline(&BTreeSet::new()).len()
        );
        assert!(picture.content.contains(&format!("{} further workers", 90 - ROWS_MAX)));
        let display = JobDisplay::new().picture(picture);
        assert_eq!(JobDisplay::read(&serde_json::to_value(&display).unwrap()), Some(display));
    }

    #[test]
    fn timeline_without_runs_is_a_picture() {
        assert!(Trace::default().timeline(&BTreeSet::new()).contains("0 runs"));
    }
}
