//! Files of items, in three formats, with exact decimals.

use bnb_framework::{
    Problem as _,
    parse::{self, ReadError, Words},
};

use super::Knapsack;

const ITEMS_MAX: usize = 1_000_000;
const DECIMALS_MAX: usize = 12;

/// The end of messages about lines that match no format.
const FORMATS: &str = "; the formats are: ITEMS CAPACITY (on a line, or a line each), then VALUE WEIGHT on a \
    line for each item; PEBBL's: CAPACITY, then NAME WEIGHT VALUE on a line for each item; and: ITEMS, then \
    INDEX VALUE WEIGHT on a line for each item, then CAPACITY";

/// A number as in the file: its digits without the point, and the number of digits after the point.
pub(super) struct Decimal {
    pub(super) digits: u64,
    pub(super) decimals: usize,
}

/// The content of a file: the capacity, and the value and the weight of each item.
struct Given {
    capacity: Decimal,
    items: Vec<(Decimal, Decimal)>,
    /// The positions of the items in the file's solution, if it has one.
    solution: Option<Vec<usize>>,
}

impl Given {
    /// Returns the problem in units of the last decimals, or `None` if sums are too large.
    fn in_whole_numbers(&self) -> Option<Knapsack> {
        let most = |of: fn(&(Decimal, Decimal)) -> usize| self.items.iter().map(of).max().unwrap_or(0);
        let value_decimals = most(|(value, _)| value.decimals);
        let weight_decimals = most(|(_, weight)| weight.decimals).max(self.capacity.decimals);
        let item = |(value, weight): &(Decimal, Decimal)| {
            value.in_units(value_decimals).zip(weight.in_units(weight_decimals))
        };
        let items: Vec<(u64, u64)> = self.items.iter().map(item).collect::<Option<_>>()?;
        let sum = |sum: u64, one: u64| sum.checked_add(one).filter(|&sum| sum < 1 << 63);
        items.iter().try_fold((0, 0), |(v, w), item| Some((sum(v, item.0)?, sum(w, item.1)?)))?;
        Some(Knapsack::new(self.capacity.in_units(weight_decimals)?, &items, value_decimals))
    }
}

/// Reads items in one of three formats. No file matches two of them: the second line has three words unless
/// it is the capacity or an item of the first format, and a single number on the last line is the capacity of
/// the last format.
pub(super) fn parse(file: &str, text: &str) -> Result<Knapsack, ReadError> {
    let mut words = Words::new(file, text);
    let given = match (is_named(words.clone()), ends_in_capacity(text)) {
        (true, true) => indexed(&mut words)?,
        (true, false) => named(&mut words)?,
        (false, _) => counted(&mut words)?,
    };
    let knapsack = given
        .in_whole_numbers()
        .ok_or_else(|| words.wrong("numbers too large", "sums below 2^63 in units of the last decimal"))?;
    if let Some(solution) = given.solution
        && knapsack.cost_of(&solution).is_none()
    {
        let found = "a solution that weighs more than the capacity";
        return Err(words.at(words.line(), found, "one that fits, or VALUE before WEIGHT on each line"));
    }
    Ok(knapsack)
}

/// Returns whether the first line is a single word, and the second has three.
fn is_named(mut words: Words<'_>) -> bool {
    let mut in_line = || {
        let mut count = usize::from(words.word("").is_ok());
        while words.peek_here().is_some() && words.word_here("").is_ok() {
            count += 1;
        }
        count
    };
    in_line() == 1 && in_line() == 3
}

/// Returns whether the last line that is not blank is a single number.
fn ends_in_capacity(text: &str) -> bool {
    let last = parse::lines(text).map(|(_, line)| line.trim()).filter(|line| !line.is_empty()).last();
    last.is_some_and(|line| Decimal::read(line).is_some())
}

/// Reads the number of items, the index, the value and the weight of each item, and the capacity. Generators
/// of hard instances write this. The indices count from 0 or from 1.
fn indexed(words: &mut Words<'_>) -> Result<Given, ReadError> {
    let count = words.number_in("a number of items", 1..=ITEMS_MAX)?;
    words.end_here(FORMATS)?;
    let (mut items, mut index) = (Vec::new(), words.number_in("the index of the first item,", 0..=1)?);
    loop {
        let value = decimal(words, "the value of an item", true)?;
        items.push((value, decimal(words, "the weight of an item", true)?));
        words.end_here(FORMATS)?;
        if items.len() == count {
            break;
        }
        index += 1;
        words.number_in("the index of the next item,", index..=index)?;
    }
    let capacity = decimal(words, "the capacity", false)?;
    words.end()?;
    Ok(Given { capacity, items, solution: None })
}

/// Reads the number of items, the capacity, and the value and the weight of each item. A solution may follow,
/// a 0 or 1 for each item.
fn counted(words: &mut Words<'_>) -> Result<Given, ReadError> {
    let count = words.number_in("a number of items", 1..=ITEMS_MAX)?;
    let capacity = decimal(words, "the capacity", words.peek_here().is_some())?;
    words.end_here(FORMATS)?;
    let mut items = Vec::new();
    for _ in 0..count {
        let value = decimal(words, "the value of an item", false)?;
        items.push((value, decimal(words, "the weight of an item", true)?));
        words.end_here(FORMATS)?;
    }
    let mut solution = None;
    if !words.is_at_end() {
        let mut taken = Vec::new();
        for item in 0..count {
            if words.number_in("whether an item is in the solution,", 0..=1)? == 1 {
                taken.push(item);
            }
        }
        solution = Some(taken);
        words.end()?;
    }
    Ok(Given { capacity, items, solution })
}

/// Reads the capacity, and the name, the weight and the value of each item: the order of
/// PEBBL's example (`binaryKnapsack::setupProblem`), which may differ from that of the other format.
fn named(words: &mut Words<'_>) -> Result<Given, ReadError> {
    let capacity = decimal(words, "the capacity", false)?;
    let (mut items, mut are_numbers) = (Vec::new(), true);
    while !words.is_at_end() {
        are_numbers &= Decimal::read(words.word("the name of an item")?).is_some();
        if items.len() == ITEMS_MAX {
            return Err(words.at(words.line(), "more items", &format!("at most {ITEMS_MAX}")));
        }
        let weight = decimal(words, "the weight of an item", true)?;
        items.push((decimal(words, "the value of an item", true)?, weight));
        words.end_here(FORMATS)?;
    }
    // Some files have the number of items here, and number the items: the two cases cannot be
    // distinguished.
    if are_numbers && capacity.in_units(0) == u64::try_from(items.len()).ok() {
        let found = "a first line that may be the capacity, or the number of items";
        return Err(words.at(1, found, &format!("one that can be told apart{FORMATS}")));
    }
    Ok(Given { capacity, items, solution: None })
}

/// Reads the next word as a decimal, on the same line or on any.
fn decimal(words: &mut Words<'_>, what: &str, is_here: bool) -> Result<Decimal, ReadError> {
    let expected = format!("{what}, a number that is not negative, with at most {DECIMALS_MAX} decimals");
    let word =
        if is_here { words.word_here(&format!("{expected}{FORMATS}"))? } else { words.word(&expected)? };
    Decimal::read(word).ok_or_else(|| words.wrong(word, &expected))
}

impl Decimal {
    /// Reads digits, with or without a point.
    pub(super) fn read(word: &str) -> Option<Self> {
        let (whole, part) = word.split_once('.').unwrap_or((word, ""));
        let part = part.trim_end_matches('0');
        let both = [whole, part].concat();
        let sound = both.bytes().all(|byte| byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && part.len() <= DECIMALS_MAX;
        let digits = if both.is_empty() { Some(0) } else { both.parse().ok() };
        Some(Self { digits: digits.filter(|_| sound)?, decimals: part.len() })
    }

    /// Returns the number in units of a decimal, or `None` if that is not a whole number of 64 bits.
    pub(super) fn in_units(&self, decimals: usize) -> Option<u64> {
        let missing = u32::try_from(decimals.checked_sub(self.decimals)?).ok()?;
        self.digits.checked_mul(10_u64.checked_pow(missing)?)
    }
}
