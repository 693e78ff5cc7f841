//! The output of `tsp solve`, as text or as JSON.

use std::fmt::Write as _;

use bnb_framework::{End, Figures, cli::log_values};
use indicatif::HumanCount;
use serde_json::{Value, json};
use taskwork::display::Cell;

use crate::instance::{City, Instance};

/// The result of a search, with its instance.
pub(super) struct Report<'a> {
    pub(super) instance: &'a Instance,
    pub(super) search: Search,
    pub(super) figures: Figures,
}

pub(super) struct Search {
    pub(super) length: Option<u64>,
    pub(super) tour: Option<Vec<City>>,
    pub(super) end: End,
    /// The tours that were collected, with their lengths.
    pub(super) collected: Vec<(u64, Vec<City>)>,
    pub(super) collected_all: bool,
    /// No tour is shorter than this.
    pub(super) bound: u64,
    pub(super) states: u64,
    pub(super) pruned: u64,
    pub(super) seconds: f64,
}

/// The width of the printed tour, in characters.
const WIDTH: usize = 100;

impl Report<'_> {
    /// Returns the distance between the tour and the bound, as a share of the tour's length.
    fn gap(&self) -> Option<f64> {
        let length = self.search.length?;
        let open = length.saturating_sub(self.search.bound);
        Some(if open == 0 { 0.0 } else { open as f64 / length as f64 })
    }

    /// Returns the values in the last line of the log.
    pub(super) fn log_values(&self) -> Vec<Option<Cell>> {
        let length = self.search.length.map(|length| length.to_string());
        log_values(length.as_deref(), Some(self.search.bound), self.gap())
    }

    pub(super) fn json(&self) -> Value {
        let Search { length, tour, end, collected, collected_all, bound, states, pruned, seconds } =
            &self.search;
        let numbered = |tour: &Vec<City>| -> Vec<usize> { tour.iter().map(|city| city + 1).collect() };
        let numbers = tour.as_ref().map(numbered);
        let collected: Vec<Value> = collected
            .iter()
            .map(|(length, tour)| json!({ "length": length, "tour": numbered(tour) }))
            .collect();
        let names: Option<Vec<&str>> = self
            .instance
            .names
            .as_ref()
            .zip(tour.as_ref())
            .map(|(names, tour)| tour.iter().map(|&city| names[city].as_str()).collect());
        let figures = &self.figures;
        json!({
            "instance": self.instance.name,
            "cities": self.instance.len(),
            "length": length,
            "proven": *end == End::Proven,
            "end": end.to_string(),
            "collected": collected,
            "collected_all": collected_all,
            "tour": numbers,
            "names": names,
            "bound": bound,
            "gap": self.gap(),
            "states": states,
            "pruned": pruned,
            "tasks": figures.tasks,
            "splits": figures.splits,
            "steals": figures.steals,
            "stolen_tasks": figures.stolen_tasks,
            "requests": figures.requests,
            "transactions": figures.transactions,
            "retries": figures.retries,
            "seconds": seconds,
        })
    }

    /// Formats the tour, its status and the figures.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        match &self.search.tour {
            None if self.search.end == End::Proven => text.push_str("there is no such tour: proven\n"),
            None => text.push_str("no such tour was found\n"),
            Some(tour) => self.write_tour(&mut text, tour),
        }
        if !self.search.collected.is_empty() {
            let more = if self.search.collected_all { "" } else { "; there may be more" };
            let _ = writeln!(text, "{} tours collected{more}", self.search.collected.len());
            for (length, tour) in &self.search.collected {
                let labels: Vec<String> = tour.iter().map(|&city| self.instance.label(city)).collect();
                let _ = writeln!(text, "{length:>16} {}", labels.join(" "));
            }
        }
        self.write_figures(&mut text);
        text
    }

    fn write_tour(&self, text: &mut String, tour: &[City]) {
        let mut width = 0;
        for (place, &city) in tour.iter().enumerate() {
            let label = self.instance.label(city);
            let end = if place + 1 < tour.len() { " → " } else { "\n" };
            if width > 0 && width + label.chars().count() > WIDTH {
                text.push('\n');
                width = 0;
            }
            width += label.chars().count() + end.chars().count();
            text.push_str(&label);
            text.push_str(end);
        }
        let length = self.search.length.unwrap_or_default();
        let (bound, gap) = (self.search.bound, 100.0 * self.gap().unwrap_or_default());
        let known = format!("no tour is shorter than {bound} (gap {gap:.2} %)");
        let quality = match self.search.end {
            End::Proven if gap == 0.0 => "proven optimal".to_owned(),
            End::Proven => format!("good enough: {known}"),
            End::Target => "which meets the target".to_owned(),
            End::StateLimit => format!("NOT proven optimal: the limit of states was reached; {known}"),
            End::TimeLimit => format!("NOT proven optimal: the time was up; {known}"),
            End::Stopped => format!("NOT proven optimal: the search was stopped; {known}"),
            End::Incomplete => format!("NOT proven optimal: parts of the tree were set aside; {known}"),
            End::Suspended => format!("NOT proven optimal: the search is suspended; {known}"),
            end => format!("NOT proven optimal: {end}; {known}"),
        };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\nlength {length}, {quality}");
    }

    fn write_figures(&self, text: &mut String) {
        let (search, figures) = (&self.search, &self.figures);
        let count = |n: u64| HumanCount(n).to_string();
        // The states of a continued search include those of earlier runs; the time and the figures do not.
        let rate = figures.worked as f64 / search.seconds.max(1e-6);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for the eye")]
        let rate = if rate >= 1.0 { format!(" ({}/s)", count(rate as u64)) } else { String::new() };
        let run = if search.end == End::Suspended { " in this run" } else { "" };
        let rows = [
            ("time", format!("{:.3} s", search.seconds)),
            ("states visited", format!("{}{run}{rate}", count(search.states))),
            ("states pruned", count(search.pruned)),
            ("tasks", format!("{}, {} of them split off", count(figures.tasks), count(figures.splits))),
            ("steals", format!("{} of {} requests", count(figures.steals), count(figures.requests))),
            ("transactions", format!("{}, {} retries", count(figures.transactions), count(figures.retries))),
        ];
        for (name, value) in rows {
            let _ = writeln!(text, "{name:<16}{value}");
        }
    }
}
