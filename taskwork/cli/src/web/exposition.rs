//! Metrics as text, in the requested format: `OpenMetrics`, or the older one of Prometheus.
//!
//! Both have the same samples. Prometheus requests `OpenMetrics` and accepts either. Clients that only support the
//! older one, such as `promtool check metrics`, request nothing, so it is the default, as in the libraries of
//! Prometheus.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::Registry,
};
use taskwork::report::Histogram;

use super::family::{Family, Kind, Value};

/// The prefix of all names.
pub const PREFIX: &str = "taskwork";

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Version 1.0.0 of `OpenMetrics`.
    OpenMetrics,
    /// Version 0.0.4 of the text format of Prometheus.
    Prometheus,
}

impl Format {
    /// Returns the format that the values of `Accept` prefer.
    pub fn wanted<'a>(accept: impl IntoIterator<Item = &'a str>) -> Self {
        let ranges = accept.into_iter().flat_map(|ranges| ranges.split(','));
        let mut wanted = (0.0, Self::Prometheus);
        for (weight, format) in ranges.filter_map(Self::of_range) {
            // If several have the same weight, the first one is chosen.
            if weight > wanted.0 {
                wanted = (weight, format);
            }
        }
        wanted.1
    }

    /// Returns the format of a media range, with its weight; `None` for others.
    fn of_range(range: &str) -> Option<(f32, Self)> {
        let mut parts = range.split(';').map(|part| part.trim().to_ascii_lowercase());
        let (format, version) = match parts.next()?.as_str() {
            "application/openmetrics-text" => (Self::OpenMetrics, "1.0.0"),
            "text/plain" | "text/*" | "*/*" => (Self::Prometheus, "0.0.4"),
            _ => return None,
        };
        let mut weight = 1.0;
        for part in parts {
            match part.split_once('=').map(|(name, value)| (name.trim(), value.trim().trim_matches('"'))) {
                Some(("q", value)) => {
                    weight = value.parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?;
                }
                Some(("version", value)) if value != version => return None,
                _ => {}
            }
        }
        Some((weight, format))
    }

    /// Returns its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metric families of one scrape.
#[derive(Debug)]
struct Gathered(Vec<Family>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, kind, samples } in &self.0 {
            let kind = match kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    encode(value, kind, &mut family)?;
                } else {
                    encode(value, kind, &mut family.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(value: &Value, kind: MetricType, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match value {
        Value::Number(number) if matches!(kind, MetricType::Counter) => {
            encoder.encode_counter::<NoLabelSet, _, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Times(times) => {
            let (sum, buckets) = classes(times);
            let exemplars: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
            encoder.encode_histogram(sum, times.count(), &buckets, exemplars)
        }
    }
}

/// Returns an estimate of the sum of durations, and the number of durations in each class.
fn classes(times: &Histogram) -> (f64, Vec<(f64, u64)>) {
    let (mut sum, mut seen, mut begin, mut buckets) = (0.0, 0, Duration::ZERO, Vec::new());
    for (end, below) in times.cumulative() {
        let number = below - seen;
        sum += (begin + end).as_secs_f64() / 2.0 * number as f64;
        buckets.push((end.as_secs_f64(), number));
        (seen, begin) = (below, end);
    }
    let longer = times.count() - seen;
    sum += begin.as_secs_f64() * longer as f64;
    buckets.push((f64::INFINITY, longer));
    (sum, buckets)
}

/// Formats the metrics.
pub fn text(families: Vec<Family>, format: Format) -> String {
    let is_counter = |family: &&Family| family.kind == Kind::Counter;
    let counters: BTreeSet<String> =
        families.iter().filter(is_counter).map(|family| format!("{PREFIX}_{}", family.name)).collect();
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Gathered(families)));
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = text::encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => text.lines().filter_map(|line| as_prometheus(line, &counters)).collect(),
    }
}

/// Converts a line of `OpenMetrics` to the older format: the description of a counter has the name of its samples, with
/// the suffix `_total`, and the text has no end marker.
fn as_prometheus(line: &str, counters: &BTreeSet<String>) -> Option<String> {
    if line == "# EOF" {
        return None;
    }
    let about = ["# HELP ", "# TYPE "].into_iter().find_map(|about| Some((about, line.strip_prefix(about)?)));
    Some(match about.and_then(|(about, rest)| Some((about, rest.split_once(' ')?))) {
        Some((about, (name, rest))) if counters.contains(name) => format!("{about}{name}_total {rest}\n"),
        _ => format!("{line}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let job = || vec![("job_id", "j-1 \"x\"".to_owned())];
        let family = |name, kind, samples| Family { name, help: "Some help.", kind, samples };
        vec![
            family("members", Kind::Gauge, vec![(Vec::new(), Value::Number(2.0))]),
            family("tasks", Kind::Counter, vec![(job(), Value::Number(7.0))]),
            family("nothing", Kind::Gauge, vec![]),
            family("steal_seconds", Kind::Histogram, vec![(job(), Value::Times(Histogram::default()))]),
        ]
    }

    #[test]
    fn metrics_follow_requested_format() {
        let text = text(families(), Format::OpenMetrics);
        for line in [
            "# HELP taskwork_members Some help.",
            "# TYPE taskwork_members gauge",
            "taskwork_members 2.0",
            "# TYPE taskwork_tasks counter",
            "taskwork_tasks_total{job_id=\"j-1 \\\"x\\\"\"} 7.0",
            "taskwork_steal_seconds_count{job_id=\"j-1 \\\"x\\\"\"} 0",
            "taskwork_steal_seconds_bucket{le=\"+Inf\",job_id=\"j-1 \\\"x\\\"\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn older_format_differs_only_in_counter_descriptions() {
        let of = |format| text(families(), format);
        let (new, old) = (of(Format::OpenMetrics), of(Format::Prometheus));
        for line in ["# HELP taskwork_tasks_total Some help.", "# TYPE taskwork_tasks_total counter"] {
            assert!(old.lines().any(|written| written == line), "{line} is missing in\n{old}");
        }
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&old), samples(&new));
        assert!(old.ends_with('\n') && !old.contains("# EOF"), "{old}");
        assert!(old.contains("# TYPE taskwork_members gauge\n"), "{old}");
    }

    #[test]
    fn format_is_negotiated_by_accept_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        for accept in [
            prometheus,
            newer,
            "Application/OpenMetrics-Text",
            "text/plain; q=0.2, application/openmetrics-text",
        ] {
            assert_eq!(Format::wanted([accept]), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/plain;version=0.0.4;q=1,*/*;q=0.1",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=much",
            "application/openmetrics-text;q=7",
            "application/openmetrics-text;q=0.1,text/plain",
            ";;;=,=;q",
        ] {
            assert_eq!(Format::wanted([accept]), Format::Prometheus, "{accept}");
        }
        assert_eq!(Format::wanted(["text/html", "application/openmetrics-text"]), Format::OpenMetrics);
        assert_eq!(Format::wanted([]), Format::Prometheus);
    }

    #[test]
    fn histogram_classes_sum_to_count() {
        let mut times = Histogram::default();
        for ms in [1, 2, 2, 4_000] {
            times.note(Duration::from_millis(ms));
        }
        let (sum, buckets) = classes(&times);
        assert_eq!(buckets.iter().map(|(_, number)| number).sum::<u64>(), 4);
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1)));
        assert!(sum > 0.003, "{sum}");
    }
}
