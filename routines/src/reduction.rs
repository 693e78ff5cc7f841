//! Requested reductions: `"sum"`, `{"topk": 10}` or `{"histogram": {"from": 0, "to": 10, "bins": 20}}` in JSON; `sum`,
//! `topk=10` or `histogram=0:10:20` on the command line.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    groups::{self, GROUPS_MAX, Selector},
    space::Space,
};

/// The forms of reductions.
const JSON: &str = "a word such as \"sum\", {\"topk\": K}, {\"bottomk\": K}, {\"histogram\": {\"from\": X, \"to\": Y, \
                    \"bins\": N}} or {\"routine\": NAME}";
const OPTION: &str = "a word such as sum, topk=K, bottomk=K, histogram=FROM:TO:BINS or routine=NAME";

/// The maximum number of reductions of a job: there are eleven.
const REDUCTIONS_MAX: usize = 11;

/// The maximum number of largest or smallest results.
const K_MAX: u64 = 1_000;

/// The maximum number of bins of a histogram.
const BINS_MAX: u64 = 10_000;

/// The maximum number of numbers and values of all groups, of which the output of each task has as many.
const NUMBERS_MAX: u64 = 100_000;

/// A number, or a few of them, that is computed from all results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reduction {
    /// The exact sum, rounded once.
    Sum,
    /// The sum divided by the count.
    Mean,
    Min,
    Max,
    /// The first index of the minimum.
    Argmin,
    /// The first index of the maximum.
    Argmax,
    Count,
    /// The largest results with their indices, 1 to 1,000, the largest first.
    Topk(u64),
    /// The smallest results with their indices, 1 to 1,000, the smallest first.
    Bottomk(u64),
    Histogram(Histogram),
    /// The value that this reducer makes of all results: NAME@VERSION, NAME for its latest version, or a digest.
    Routine(String),
}

/// The equal intervals of a histogram. Each includes its lower end, and the last one its upper end, too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Histogram {
    pub(crate) from: f64,
    pub(crate) to: f64,
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) bins: u64,
}

/// The requested reductions: of all results, or of each group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reduce {
    pub(crate) numbers: Vec<Reduction>,
    /// The arguments with equal values in a group.
    pub(crate) by: Vec<Selector>,
    /// The routine that combines all results: its name as requested, in an order its digest.
    pub(crate) routine: Option<String>,
}

impl Reduce {
    /// # Errors
    /// The reason for which they are refused together.
    pub(crate) fn new(numbers: Vec<Reduction>, by: Vec<Selector>) -> Result<Self, String> {
        Reduction::check_names(&numbers)?;
        Selector::check_all(&by)?;
        let (mut of_numbers, mut routine) = (Vec::new(), None);
        for wanted in numbers {
            match wanted {
                Reduction::Routine(name) => routine = Some(name),
                number => of_numbers.push(number),
            }
        }
        let numbers = of_numbers;
        if routine.is_some() && !by.is_empty() {
            return Err(
                "a routine combines all results, not those of groups: remove `by`, or submit another job"
                    .to_owned(),
            );
        }
        if numbers.is_empty() && !by.is_empty() {
            return Err(
                "`by` groups the numbers of `reduce`, which are missing: give both, or none".to_owned()
            );
        }
        Ok(Self { numbers, by, routine })
    }

    /// Returns whether no numbers are computed.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Checks the arguments of a job.
    ///
    /// # Errors
    /// If a call has no key, or there are too many groups.
    pub(crate) fn check(&self, space: &Space) -> Result<(), String> {
        let of_group: u64 = self.numbers.iter().map(Reduction::len).sum::<u64>() + self.by.len() as u64;
        let most = GROUPS_MAX.min(NUMBERS_MAX / of_group.max(1));
        if self.by.is_empty() || groups::count(space, &self.by, most)? <= most {
            return Ok(());
        }
        Err(format!(
            "`by` makes more than {most} groups of {of_group} values and numbers; a job has at most {GROUPS_MAX} groups and \
             {NUMBERS_MAX} such numbers: choose arguments with fewer values, or smaller reductions"
        ))
    }
}

impl Reduction {
    /// Returns the reductions in JSON.
    ///
    /// # Errors
    /// The place and the remedy of the first invalid one.
    pub(crate) fn parse_all(list: &[Value]) -> Result<Vec<Self>, String> {
        let parsed = list.iter().enumerate().map(|(at, json)| {
            Self::parse(json, JSON).map_err(|reason| format!("`reduce[{at}]` is invalid: {reason}"))
        });
        parsed.collect()
    }

    /// Checks that the results have different names.
    ///
    /// # Errors
    /// If there are too many, or a reduction is requested with two parameters.
    fn check_names(list: &[Self]) -> Result<(), String> {
        if list.len() > REDUCTIONS_MAX {
            return Err(format!(
                "`reduce` has {} numbers: give each of the {REDUCTIONS_MAX} once",
                list.len()
            ));
        }
        let is_other = |one: &Self, other: &Self| one != other && one.name() == other.name();
        let twice = list.iter().enumerate().find(|(at, one)| list[..*at].iter().any(|it| is_other(it, one)));
        twice.map_or(Ok(()), |(at, one)| {
            Err(format!("`reduce[{at}]` repeats {} with another parameter: submit another job", one.name()))
        })
    }

    fn parse(json: &Value, forms: &str) -> Result<Self, String> {
        let parsed = Self::deserialize(json).map_err(|error| format!("{error}; write {forms}"))?;
        match parsed {
            Self::Topk(k) | Self::Bottomk(k) if !(1..=K_MAX).contains(&k) => {
                Err(format!("{} is {k}: give 1 to {K_MAX}", parsed.name()))
            }
            Self::Histogram(Histogram { bins, .. }) if !(1..=BINS_MAX).contains(&bins) => {
                Err(format!("a histogram has {bins} bins: give 1 to {BINS_MAX}"))
            }
            Self::Histogram(Histogram { from, to, .. }) if !(from < to && (to - from).is_finite()) => {
                Err(format!(
                    "a histogram starts at {from} and ends at {to}: give a larger end, less than 1e308 away"
                ))
            }
            parsed => Ok(parsed),
        }
    }

    /// Returns the maximum number of its numbers.
    fn len(&self) -> u64 {
        match self {
            Self::Topk(k) | Self::Bottomk(k) => *k,
            Self::Histogram(bins) => bins.bins,
            _ => 1,
        }
    }

    /// Returns the name of the result, which is the word or the only field in JSON.
    pub(crate) fn name(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(word)) => word,
            Ok(Value::Object(fields)) => fields.keys().cloned().collect(),
            _ => String::new(),
        }
    }
}

impl FromStr for Reduction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            serde_json::from_str::<Value>(text).map_err(|_| format!("{text:?} is no number; write {OPTION}"))
        };
        let json = match text.split_once('=') {
            None => json!(text),
            Some(("routine", name)) => json!({ "routine": name }),
            Some(("histogram", parameters)) => match parameters.split(':').collect::<Vec<_>>()[..] {
                [from, to, bins] => {
                    json!({ "histogram": { "from": number(from)?, "to": number(to)?, "bins": number(bins)? } })
                }
                _ => return Err(format!("write {OPTION}")),
            },
            Some((name, parameter)) => json!({ name: number(parameter)? }),
        };
        Self::parse(&json, OPTION)
    }
}

impl Histogram {
    /// Returns the number of the bin of a result: the number of bins below the first one, one more above the last one,
    /// and two more for NaN.
    pub(crate) fn place(&self, result: f64) -> u64 {
        if result.is_nan() {
            return self.bins + 2;
        }
        if result < self.from {
            return self.bins;
        }
        if result > self.to {
            return self.bins + 1;
        }
        let edge = |bin: u64| self.from + (self.to - self.from) * (bin as f64 / self.bins as f64);
        // The last bin that starts at most here. The first one does.
        let (mut bin, mut end) = (0, self.bins);
        while end - bin > 1 {
            let middle = u64::midpoint(bin, end);
            if edge(middle) <= result { bin = middle } else { end = middle }
        }
        bin
    }

    /// Returns the counts of a histogram, from those of each place that is not empty.
    pub(crate) fn shown(&self, count: impl Fn(u64) -> u64) -> Value {
        let Self { from, to, bins } = *self;
        let counts: Vec<u64> = (0..bins).map(&count).collect();
        let (under, over, nan) = (count(bins), count(bins + 1), count(bins + 2));
        json!({ "from": from, "to": to, "counts": counts, "under": under, "over": over, "nan": nan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_have_one_form_in_json_and_one_on_the_command_line() {
        let bins = Histogram { from: -1.5, to: 10.0, bins: 20 };
        for (json, text, expected) in [
            (json!("argmin"), "argmin", Reduction::Argmin),
            (json!({ "topk": 10 }), "topk=10", Reduction::Topk(10)),
            (json!({ "bottomk": 1000 }), "bottomk=1000", Reduction::Bottomk(1000)),
            (json!({ "routine": "merge@1" }), "routine=merge@1", Reduction::Routine("merge@1".to_owned())),
            (
                json!({ "histogram": { "from": -1.5, "to": 10, "bins": 20 } }),
                "histogram=-1.5:10:20",
                Reduction::Histogram(bins),
            ),
        ] {
            assert_eq!(Reduction::parse_all(&[json]), Ok(vec![expected.clone()]));
            assert_eq!(text.parse(), Ok(expected));
        }
    }

    #[test]
    fn invalid_reductions_are_refused_with_place_and_remedy() {
        for (json, part) in [
            (json!("median"), "`argmin`"),
            (json!("topk"), "{\"topk\": K}"),
            (json!({ "sum": 1 }), "write a word"),
            (json!({ "topk": 0 }), "give 1 to 1000"),
            (json!({ "topk": 1.5 }), "write a word"),
            (json!({ "bottomk": 1001 }), "bottomk is 1001"),
            (json!({ "histogram": { "from": 0, "to": 1 } }), "`bins`"),
            (json!({ "histogram": { "from": 0, "to": 1, "bins": 10_001 } }), "give 1 to 10000"),
            (json!({ "histogram": { "from": 1, "to": 1, "bins": 5 } }), "larger end"),
            (json!({ "histogram": { "from": -1e308, "to": 1e308, "bins": 5 } }), "1e308 away"),
        ] {
            let refused = Reduction::parse_all(&[json!("sum"), json.clone()]).unwrap_err();
            assert!(refused.contains("`reduce[1]`") && refused.contains(part), "{json}: {refused}");
        }
        let twice = vec![Reduction::Topk(1), Reduction::Sum, Reduction::Topk(2)];
        let many = vec![Reduction::Sum; 12];
        assert!(Reduce::new(many, Vec::new()).unwrap_err().contains("12 numbers"));
        let routine = || vec![Reduction::Routine("merge@1".to_owned())];
        assert!(Reduce::new(routine(), vec![Selector::Position(0)]).unwrap_err().contains("remove `by`"));
        assert_eq!(Reduce::new(routine(), Vec::new()).unwrap().routine.as_deref(), Some("merge@1"));
        assert!(Reduce::new(twice, Vec::new()).unwrap_err().contains("`reduce[2]` repeats topk"));
        for text in ["topk=x", "topk", "topk=", "histogram=0:1", "histogram=0:1:2:3", "sum=1", "median"] {
            let refused = text.parse::<Reduction>().unwrap_err();
            assert!(refused.contains("write a word such as sum, topk=K"), "{text}: {refused}");
        }
    }

    #[test]
    fn bins_contain_their_lower_edges_and_the_last_one_its_upper_edge() {
        let bins = Histogram { from: 0.0, to: 1.0, bins: 10 };
        for (result, place) in [
            (0.0, 0),
            (-0.0, 0),
            (0.099_999, 0),
            (0.1, 1),
            (0.3, 3),
            (0.7, 7),
            (1.0, 9),
            (-1e-300, 10),
            (f64::NEG_INFINITY, 10),
            (1.0 + f64::EPSILON, 11),
            (f64::INFINITY, 11),
            (f64::NAN, 12),
        ] {
            assert_eq!(bins.place(result), place, "{result}");
        }
    }

    #[test]
    fn number_of_groups_is_limited_by_their_sizes() {
        let check = |numbers: &[Reduction], groups: i64| {
            let reduce = Reduce::new(numbers.to_vec(), vec![Selector::Position(0)]).unwrap();
            reduce.check(&Space::Range { from: 0, to: groups })
        };
        let words = [Reduction::Mean, Reduction::Min, Reduction::Argmax, Reduction::Count];
        assert_eq!(check(&words, 10_000), Ok(()));
        assert!(check(&words, 10_001).unwrap_err().contains("more than 10000 groups of 5 values"));
        assert_eq!(check(&[Reduction::Topk(99)], 1_000), Ok(()));
        assert!(check(&[Reduction::Topk(99)], 1_001).unwrap_err().contains("more than 1000 groups"));
        let alone = Reduce::new(Vec::new(), vec![Selector::Position(0)]);
        assert!(alone.unwrap_err().contains("`reduce`"));
    }
}
