//! Parameter spaces: the arguments of the calls of a job, as a function from index to argument. The points of a product or a
//! zip are computed when they are needed, so a space of 10¹⁸ points takes a few bytes.
//!
//! ```text
//!   arguments: [VALUE, …]                    or {"list": [VALUE, …]}
//!              {"range": [FROM, TO]}         integers, excluding TO
//!              {"product": AXES}             all combinations; the last axis changes fastest
//!              {"zip": AXES}                 the points of all axes with the same index
//!              {"file": "NAME"}              the lines of a resource, each a value
//!   AXES:      [arguments, …]                a point is a list, so of positional arguments
//!              {"PARAMETER": arguments, …}   a point is an object, so of named arguments
//! ```

use std::{collections::BTreeSet, fmt, iter};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{groups::Selector, wire::check_nested};

/// The maximum number of points, also of a part of a space.
const POINTS_MAX: u64 = 1_000_000_000_000_000_000;

/// The maximum number of calls of a job.
const CALLS_MAX: u64 = 1_000_000_000;

/// The maximum number of axes of a product or a zip, and of nested ones.
const AXES_MAX: usize = 100;
const DEPTH_MAX: usize = 8;

/// The largest integer up to which all integers are exact in every language.
const INTEGER_MAX: i64 = 1 << 53;

/// The number of integers of a range above which only its ends are checked.
const CHECKED_MAX: u64 = 1_000_000;

/// The arguments of the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Space {
    /// Consecutive integers.
    Range { from: i64, to: i64 },
    /// Values as JSON.
    List(Vec<String>),
    /// All combinations of the points of the axes.
    Product(Axes),
    /// The points of the axes, which have equal numbers of points, side by side.
    Zip(Axes),
    /// The lines of a resource, until they are read.
    File(String),
}

/// The axes of a product or a zip, at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Axes {
    /// The parameters; empty if arguments are positional.
    names: Vec<String>,
    spaces: Vec<Space>,
}

impl Space {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Range { from, to } => u64::try_from(to.saturating_sub(*from)).unwrap_or(0),
            Self::List(values) => values.len() as u64,
            Self::Product(axes) => axes.spaces.iter().map(Self::len).fold(1, u64::saturating_mul),
            Self::Zip(axes) => axes.spaces.first().map_or(0, Self::len),
            Self::File(_) => 0,
        }
    }

    /// Returns a short digest of all arguments.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        self.hash(&mut hasher);
        let mut digits = hasher.finalize().to_hex().to_string();
        digits.truncate(16);
        digits
    }

    fn hash(&self, hasher: &mut blake3::Hasher) {
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        // The words are no JSON, so they differ from values.
        let (kind, axes) = match self {
            Self::Range { from, to } => {
                hasher.update(format!("{from}..{to}").as_bytes());
                return;
            }
            Self::List(values) => return values.iter().for_each(|value| text(value)),
            Self::File(name) => return ["file", name].into_iter().for_each(text),
            Self::Product(axes) => ("product", axes),
            Self::Zip(axes) => ("zip", axes),
        };
        text(kind);
        text(&axes.names.len().to_string());
        axes.names.iter().for_each(|name| text(name));
        axes.spaces.iter().for_each(|space| text(&space.digest()));
    }

    /// Returns the argument of a call.
    ///
    /// # Errors
    /// If there is no such call, or its argument is not JSON.
    pub(crate) fn argument(&self, index: u64) -> Result<Box<RawValue>, String> {
        let mut json = String::new();
        self.write(index, &mut json).ok_or_else(|| format!("the job has no call {index}"))?;
        RawValue::from_string(json).map_err(|error| format!("the argument of call {index}: {error}"))
    }

    /// Appends a point; `None` if there is none with this index.
    fn write(&self, index: u64, json: &mut String) -> Option<()> {
        match self {
            Self::Range { from, to } => {
                let number = from.checked_add_unsigned(index).filter(|number| number < to)?;
                json.push_str(&number.to_string());
                Some(())
            }
            Self::List(values) => {
                json.push_str(values.get(usize::try_from(index).ok()?)?);
                Some(())
            }
            Self::Product(axes) => {
                let mut rest = index;
                let places = axes.spaces.iter().rev().map(|space| {
                    let place = rest.checked_rem(space.len())?;
                    rest /= space.len();
                    Some(place)
                });
                let places = places.collect::<Option<Vec<_>>>()?;
                if rest > 0 {
                    return None;
                }
                axes.write(places.into_iter().rev(), json)
            }
            Self::Zip(axes) => axes.write(iter::repeat(index), json),
            Self::File(_) => None,
        }
    }

    /// Returns indices of points that contain each value of each axis; of a long range only the first and the last value.
    pub(crate) fn samples(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Self::Range { .. } if self.len() > CHECKED_MAX => Box::new([0, self.len() - 1].into_iter()),
            Self::Product(_) if self.len() == 0 => Box::new(iter::empty()),
            Self::Product(axes) => {
                let mut stride = 1_u64;
                Box::new(axes.spaces.iter().rev().flat_map(move |space| {
                    let of_axis = stride;
                    stride = stride.saturating_mul(space.len());
                    space.samples().map(move |place| place * of_axis)
                }))
            }
            // The axes have the same indices.
            Self::Zip(axes) => {
                Box::new(axes.spaces.iter().flat_map(Self::samples).collect::<BTreeSet<_>>().into_iter())
            }
            Self::Range { .. } | Self::List(_) | Self::File(_) => Box::new(0..self.len()),
        }
    }

    /// Replaces parts of a space: each list of values and each file, which `with` receives with the number of axes around it.
    ///
    /// # Errors
    /// If `with` fails.
    pub(crate) fn try_map<E>(self, with: &mut impl FnMut(Self, usize) -> Result<Self, E>) -> Result<Self, E> {
        self.try_map_at(0, with)
    }

    fn try_map_at<E>(
        self,
        depth: usize,
        with: &mut impl FnMut(Self, usize) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let mut mapped = |Axes { names, spaces }: Axes| {
            let spaces = spaces.into_iter().map(|space| space.try_map_at(depth + 1, with));
            Ok(Axes { names, spaces: spaces.collect::<Result<_, E>>()? })
        };
        match self {
            Self::Product(axes) => mapped(axes).map(Self::Product),
            Self::Zip(axes) => mapped(axes).map(Self::Zip),
            Self::Range { .. } => Ok(self),
            Self::List(_) | Self::File(_) => with(self, depth),
        }
    }

    /// Returns whether a list of values or a file in the space meets a condition.
    pub(crate) fn any(&self, meets: &impl Fn(&Self) -> bool) -> bool {
        match self {
            Self::Product(axes) | Self::Zip(axes) => axes.spaces.iter().any(|space| space.any(meets)),
            Self::Range { .. } => false,
            Self::List(_) | Self::File(_) => meets(self),
        }
    }

    /// Checks the numbers of points, which are known once files are read.
    ///
    /// # Errors
    /// If a part has too many points, or the axes of a zip have different numbers of points. The text names the part.
    pub(crate) fn check_len(&self) -> Result<(), String> {
        self.check_len_at("arguments")?;
        if self.len() > CALLS_MAX {
            return Err(format!("a job has at most {CALLS_MAX} calls, not {}: submit several", self.len()));
        }
        Ok(())
    }

    fn check_len_at(&self, path: &str) -> Result<(), String> {
        let (Self::Product(axes) | Self::Zip(axes)) = self else { return Ok(()) };
        let path = format!("{path}.{}", if matches!(self, Self::Zip(_)) { "zip" } else { "product" });
        for (at, space) in axes.spaces.iter().enumerate() {
            space.check_len_at(&axes.path(&path, at))?;
        }
        let lens: Vec<u64> = axes.spaces.iter().map(Self::len).collect();
        if let (Self::Zip(_), Some(at)) = (self, lens.iter().position(|len| *len != lens[0])) {
            let (first, other) = (axes.path(&path, 0), axes.path(&path, at));
            return Err(format!(
                "`{first}` has {} points and `{other}` {}: the axes of a zip have equal numbers of points",
                lens[0], lens[at]
            ));
        }
        // An empty axis makes the product empty, so the order of the factors must not matter.
        let points = lens.iter().try_fold(1_u64, |points, len| points.checked_mul(*len));
        let is_large = matches!(self, Self::Product(_)) && points.is_none_or(|points| points > POINTS_MAX);
        if is_large && !lens.contains(&0) {
            return Err(format!("`{path}` has more than 10^18 points: shorten its axes"));
        }
        Ok(())
    }
}

impl Axes {
    /// Appends a point of each axis.
    fn write(&self, mut places: impl Iterator<Item = u64>, json: &mut String) -> Option<()> {
        let (open, close) = if self.names.is_empty() { ('[', ']') } else { ('{', '}') };
        json.push(open);
        for (at, space) in self.spaces.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            if let Some(name) = self.names.get(at) {
                json.push_str(&serde_json::to_string(name).ok()?);
                json.push(':');
            }
            space.write(places.next()?, json)?;
        }
        json.push(close);
        Some(())
    }

    /// Returns an axis by its name or position.
    pub(crate) fn axis(&self, by: &Selector) -> Option<&Space> {
        let at = match by {
            Selector::Name(name) => self.names.iter().position(|its| its == name)?,
            Selector::Position(at) => usize::try_from(*at).ok().filter(|_| self.names.is_empty())?,
        };
        self.spaces.get(at)
    }

    fn path(&self, path: &str, at: usize) -> String {
        self.names.get(at).map_or_else(|| format!("{path}[{at}]"), |name| format!("{path}.{name}"))
    }
}

/// Parses the arguments of the calls of a job.
///
/// # Errors
/// The place and the reason for which they are refused.
pub(crate) fn parse(arguments: &RawValue) -> Result<Space, String> {
    let space = parse_at(arguments, "arguments", 0)?;
    // Otherwise the number of points is unknown until the files are read.
    let has_files = space.any(&|part| matches!(part, Space::File(_)));
    if has_files { Ok(space) } else { space.check_len().map(|()| space) }
}

fn parse_at(json: &RawValue, path: &str, depth: usize) -> Result<Space, String> {
    if json.get().starts_with('[') {
        return list(json, path, depth);
    }
    let fields = serde_json::from_str::<Fields>(json.get()).ok();
    let Some([(kind, content)]) = fields.as_ref().map(|Fields(fields)| &fields[..]) else {
        return Err(format!(
            "`{path}` is neither a list nor an object with one of the fields range, list, product, zip and file, such as \
             {{\"range\": [FROM, TO]}}"
        ));
    };
    let path = format!("{path}.{kind}");
    let refused = |expected, error: serde_json::Error| format!("`{path}` is not {expected}: {error}");
    match &**kind {
        "range" => {
            let (from, to) =
                serde_json::from_str(content.get()).map_err(|error| refused("[FROM, TO]", error))?;
            range(from, to)
        }
        "list" => list(content, &path, depth),
        "product" => axes(content, &path, depth).map(Space::Product),
        "zip" => axes(content, &path, depth).map(Space::Zip),
        "file" => {
            let name = serde_json::from_str(content.get());
            name.map(Space::File).map_err(|error| refused("the name of a resource", error))
        }
        _ => Err(format!("`{path}` is unknown: write range, list, product, zip or file")),
    }
}

fn axes(json: &RawValue, path: &str, depth: usize) -> Result<Axes, String> {
    if depth >= DEPTH_MAX {
        return Err(format!(
            "`{path}` is nested more than {DEPTH_MAX} deep: merge its axes with the outer ones"
        ));
    }
    let refused = |error| format!("`{path}` is neither a list nor an object of axes: {error}");
    let (names, parts) = if json.get().starts_with('[') {
        (Vec::new(), serde_json::from_str::<Vec<Box<RawValue>>>(json.get()).map_err(refused)?)
    } else {
        let Fields(fields) = serde_json::from_str(json.get()).map_err(refused)?;
        fields.into_iter().unzip()
    };
    if parts.is_empty() || parts.len() > AXES_MAX {
        return Err(format!("`{path}` has {} axes: give 1 to {AXES_MAX}", parts.len()));
    }
    if let Some(name) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(format!("`{path}` has the axis {:?} twice: remove one", name.1));
    }
    if let Some(name) = names.iter().find(|name| name.starts_with('$')) {
        return Err(format!("`{path}` has the axis {name:?}: names with $ are reserved, choose another one"));
    }
    let mut axes = Axes { names, spaces: Vec::new() };
    for (at, part) in parts.iter().enumerate() {
        let space = parse_at(part, &axes.path(path, at), depth + 1)?;
        axes.spaces.push(space);
    }
    Ok(axes)
}

/// # Errors
/// If the range is reversed, or has numbers beyond 2⁵³.
pub(crate) fn range(from: i64, to: i64) -> Result<Space, String> {
    if from > to || from < -INTEGER_MAX || to > INTEGER_MAX {
        return Err(format!(
            "a range starts at -2^53 or later, and ends at 2^53 or earlier, not [{from}, {to}]"
        ));
    }
    Ok(Space::Range { from, to })
}

fn list(json: &RawValue, path: &str, depth: usize) -> Result<Space, String> {
    let values: Vec<&RawValue> =
        serde_json::from_str(json.get()).map_err(|error| format!("`{path}`: {error}"))?;
    let values = values.into_iter().enumerate().map(|(index, value)| {
        check_nested(value.get(), depth)
            .map_err(|error| format!("`{path}`, argument {index} is invalid: {error}"))?;
        Ok(value.get().to_owned())
    });
    Ok(Space::List(values.collect::<Result<_, String>>()?))
}

/// Returns the values in the lines of a file, within this number of axes; empty lines have none.
///
/// # Errors
/// The first line that is no value.
pub(crate) fn lines(name: &str, text: &str, depth: usize) -> Result<Space, String> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let values = lines.map(|(number, line)| {
        let refused = |error: String| format!("line {number} of the resource {name} is no value: {error}");
        let value: &RawValue = serde_json::from_str(line).map_err(|error| refused(error.to_string()))?;
        check_nested(value.get(), depth).map_err(|error| refused(error.to_string()))?;
        Ok(value.get().to_owned())
    });
    Ok(Space::List(values.collect::<Result<_, String>>()?))
}

/// The fields of a JSON object in their order.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(OfObject)
    }
}

#[cfg(test)]
mod tests;
