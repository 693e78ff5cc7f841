//! Values that the tasks of a job share: [`Variable`]s, which only ever improve.

use std::{any::Any, any::TypeId as RustType, fmt, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use crate::wire::codec;

/// A value that all tasks of a job share and that only ever improves, such as the best solution known (paper,
/// 3.6).
///
/// A task reads a copy that may be slightly out of date. A new value is published to the other tasks of the node
/// immediately and to the other nodes through ZooKeeper. At every level [`improves`](Self::improves) decides
/// which value is kept.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no variable of a job",
    note = "implement `taskwork::Variable` for a type of its own, with the type of its values and `improves`"
)]
pub trait Variable: 'static {
    /// The type of its values.
    type Value: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Its name, which is also the name of its znode: 1 to 64 letters, digits, `-` or `_`.
    const NAME: &'static str;
    /// Returns whether `new` should replace `old`. Must be a strict order: asymmetric, and false for a value
    /// and itself.
    fn improves(new: &Self::Value, old: &Self::Value) -> bool;
    /// Returns the score of a value, for display; by default none. The unit is that of
    /// [`Hooks::outlook`](crate::Hooks::outlook), which is negated if larger is better.
    fn score(_value: &Self::Value) -> Option<Score> {
        None
    }
}

/// The score of a value of a [`Variable`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// A number such as a cost: smaller is better.
    Cost(f64),
    /// A number such as a profit: larger is better.
    Profit(f64),
}

/// A value of a variable suggested by a user.
pub struct Suggested {
    pub(crate) variable: RustType,
    pub(crate) value: Arc<AnyValue>,
    pub(crate) said: String,
    /// Describes the known value in the answer if it is at least as good.
    pub(crate) describe: Option<Describe>,
}

type Describe = Box<dyn Fn(&AnyValue) -> String + Send>;

impl Suggested {
    /// Creates a suggested value of a variable, with its description for the answer, such as `cost 39`.
    pub fn of<V: Variable>(value: V::Value, said: impl Into<String>) -> Self {
        Self { variable: RustType::of::<V>(), value: Arc::new(value), said: said.into(), describe: None }
    }

    /// Adds a function that describes the known value, for the answer if the suggestion is not better. `V`
    /// must be the same as in [`of`](Self::of).
    #[must_use]
    pub fn compared<V: Variable>(mut self, describe: impl Fn(&V::Value) -> String + Send + 'static) -> Self {
        if self.variable == RustType::of::<V>() {
            self.describe = Some(Box::new(move |known| describe(value::<V>(known))));
        }
        self
    }
}

impl fmt::Debug for Suggested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suggested").field("said", &self.said).finish_non_exhaustive()
    }
}

/// The variables that a program declares, in order of declaration.
#[derive(Debug, Default)]
pub struct Variables {
    pub(crate) declared: Vec<Declared>,
}

/// A declared variable with its type erased: functions to compare, read and write its values.
#[derive(Clone)]
pub(crate) struct Declared {
    pub(crate) name: &'static str,
    pub(crate) variable: RustType,
    pub(crate) improves: fn(&AnyValue, &AnyValue) -> bool,
    pub(crate) encode: fn(&AnyValue) -> Result<Vec<u8>, codec::EncodeError>,
    pub(crate) show: fn(&AnyValue) -> serde_json::Value,
    pub(crate) score: fn(&AnyValue) -> Option<Score>,
    pub(crate) decode: fn(&[u8]) -> Result<Arc<AnyValue>, codec::DecodeError>,
}

/// A variable's value with its type erased.
pub(crate) type AnyValue = dyn Any + Send + Sync;

impl Variables {
    /// Declares a variable.
    ///
    /// # Panics
    /// If its name is not 1 to 64 letters, digits, `-` or `_`, or is declared twice: a mistake in the
    /// program.
    pub fn declare<V: Variable>(&mut self) -> &mut Self {
        assert!(is_name(V::NAME), "the name of a variable is 1 to 64 letters, digits, - or _: {:?}", V::NAME);
        assert!(self.declared.iter().all(|d| d.name != V::NAME), "variable {:?} is declared twice", V::NAME);
        self.declared.push(Declared {
            name: V::NAME,
            variable: RustType::of::<V>(),
            improves: |new, old| V::improves(value::<V>(new), value::<V>(old)),
            encode: |v| codec::encode(value::<V>(v)),
            show: |v| serde_json::to_value(value::<V>(v)).unwrap_or_default(),
            score: |v| V::score(value::<V>(v)),
            decode: |bytes| Ok(Arc::new(codec::decode::<V::Value>(bytes)?)),
        });
        self
    }
}

impl fmt::Debug for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declared").field("name", &self.name).finish_non_exhaustive()
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Downcasts a value of the variable `V`.
pub(crate) fn value<V: Variable>(any: &AnyValue) -> &V::Value {
    any.downcast_ref().expect("a slot holds only values of the variable it was declared for")
}
