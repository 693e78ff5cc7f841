//! Metrics as text, in the format of `OpenMetrics`.

use std::{collections::HashMap, fmt, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::{MetricType, exemplar::Exemplar},
    registry::Registry,
};
use taskwork::Histogram;

use super::families::{Family, Kind, Value};

/// The media type of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Families that were gathered for one scrape.
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

/// Returns an estimate of the sum of durations, and the number of them in each class.
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

/// Returns the metrics as text.
pub(super) fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::with_prefix("taskwork");
    registry.register_collector(Box::new(Gathered(families)));
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_the_format_wants_them() {
        let job = || vec![("job", "j-1 \"x\"".to_owned())];
        let family = |name, kind, samples| Family { name, help: "Some help.", kind, samples };
        let text = text(vec![
            family("members", Kind::Gauge, vec![(Vec::new(), Value::Number(2.0))]),
            family("tasks", Kind::Counter, vec![(job(), Value::Number(7.0))]),
            family("nothing", Kind::Gauge, vec![]),
            family("steal_seconds", Kind::Histogram, vec![(job(), Value::Times(Histogram::default()))]),
        ]);
        for line in [
            "# HELP taskwork_members Some help.",
            "# TYPE taskwork_members gauge",
            "taskwork_members 2.0",
            "# TYPE taskwork_tasks counter",
            "taskwork_tasks_total{job=\"j-1 \\\"x\\\"\"} 7.0",
            "taskwork_steal_seconds_count{job=\"j-1 \\\"x\\\"\"} 0",
            "taskwork_steal_seconds_bucket{le=\"+Inf\",job=\"j-1 \\\"x\\\"\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn the_classes_of_durations_add_up() {
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
