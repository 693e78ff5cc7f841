//! The controller of machines (`taskwork scale`) for metrics: whether there is one, and its last report.

use std::{collections::BTreeMap, convert::Infallible, time::Duration};

use taskwork::{Client, client::scaling};
use taskwork_cli::web::family::{Family, Kind, Labels, Value};
use tokio::time;

use super::board::Board;
use crate::scale::memory::Said;

/// The interval at which the report is read.
const READ_EVERY: Duration = Duration::from_secs(15);
/// The maximum time to wait for `ZooKeeper`.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last report of a controller.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Controller {
    is_there: bool,
    /// The time of the report, in milliseconds since 1970 by the server's clock.
    at_ms: u64,
    wanted: u32,
    /// The number of machines by standing.
    machines: BTreeMap<String, u32>,
    spent: Option<f64>,
    currency: Option<String>,
}

impl Controller {
    fn of(said: &scaling::Said) -> Self {
        let Said { wanted, machines, spent, currency, .. } = Said::read(&said.said);
        Self { is_there: said.holder.is_some(), at_ms: said.at_ms, wanted, machines, spent, currency }
    }
}

/// Reads the report at intervals, without end. While it cannot be read, nothing is known about the controller.
pub(crate) async fn watch(client: Client, board: &Board) -> Infallible {
    let client = client.with_patience(Some(PATIENCE));
    let mut ticks = time::interval(READ_EVERY);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let said = client.scaling_said().await;
        board.set_controller(said.ok().flatten().as_ref().map(Controller::of));
    }
}

/// Returns the metrics of a controller, without samples if there never was one.
pub(super) fn families(controller: Option<&Controller>) -> Vec<Family> {
    let gauge = |name, help, samples: Vec<(Labels, Value)>| Family { name, help, kind: Kind::Gauge, samples };
    let one = |number: Option<f64>| number.map(|number| (Vec::new(), Value::Number(number))).into_iter();
    let of = |number: fn(&Controller) -> f64| one(controller.map(number)).collect::<Vec<_>>();
    let machines = controller.into_iter().flat_map(|controller| &controller.machines);
    let machines = machines
        .map(|(standing, machines)| (vec![("state", standing.clone())], Value::Number(f64::from(*machines))));
    let spent = controller.and_then(|controller| Some((controller.currency.clone()?, controller.spent?)));
    let spent = spent.map(|(currency, spent)| (vec![("currency", currency)], Value::Number(spent)));
    vec![
        gauge(
            "scale_controller",
            "Whether a controller (taskwork scale) decides about machines: 1, or 0 if it has gone.",
            of(|controller| f64::from(u8::from(controller.is_there))),
        ),
        gauge(
            "scale_report_timestamp_seconds",
            "Time of the last report of the controller, in seconds since 1970.",
            of(|controller| controller.at_ms as f64 / 1e3),
        ),
        gauge(
            "scale_wanted_machines",
            "Machines that the controller wants.",
            of(|controller| f64::from(controller.wanted)),
        ),
        gauge("scale_machines", "Machines of the controller, by their states.", machines.collect()),
        gauge(
            "scale_spent",
            "Cost of the controller's machines, as it counts towards its budget.",
            spent.into_iter().collect(),
        ),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a controller with all metrics.
    pub(crate) fn controller() -> Controller {
        let said =
            br#"{"wanted": 3, "machines": {"working": 2, "asked": 1}, "spent": 1.5, "currency": "EUR"}"#;
        let said = scaling::Said { holder: None, state: Vec::new(), said: said.to_vec(), at_ms: 9_000 };
        Controller::of(&said)
    }

    #[test]
    fn report_of_controller_becomes_metrics() {
        let families = families(Some(&controller()));
        let samples = |name: &str| {
            let family = families.iter().find(|family| family.name == name).unwrap();
            let sample = |(labels, value): &(Labels, Value)| match value {
                Value::Number(number) => (labels.first().map(|(_, label)| label.clone()), number.to_string()),
                Value::Times(_) => panic!("it is a number"),
            };
            family.samples.iter().map(sample).collect::<Vec<_>>()
        };
        let of = |label: &str, number: &str| (Some(label.to_owned()), number.to_owned());
        assert_eq!(samples("scale_controller"), [(None, "0".to_owned())], "it has gone");
        assert_eq!(samples("scale_report_timestamp_seconds"), [(None, "9".to_owned())]);
        assert_eq!(samples("scale_wanted_machines"), [(None, "3".to_owned())]);
        assert_eq!(samples("scale_machines"), [of("asked", "1"), of("working", "2")]);
        assert_eq!(samples("scale_spent"), [of("EUR", "1.5")]);
    }

    #[test]
    fn cluster_without_controller_has_no_samples() {
        assert!(families(None).iter().all(|family| family.samples.is_empty()));
    }
}
