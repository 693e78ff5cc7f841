//! Values as schemas see them: numbers, texts and lists in place of the objects that stand for them.

use data_encoding::BASE64;
use serde_json::{Map, Value, json};

use crate::wire::FRAME_BYTES_MAX;

/// The maximum number of dimensions of an array that is checked: its lists are nested as deep.
const DIMENSIONS_MAX: usize = 32;

/// The maximum number of values in the lists of an array: JSON of the size of a frame has no more.
const VALUES_MAX: usize = FRAME_BYTES_MAX / 2;

/// Replaces objects that stand for other values.
pub(super) fn to_plain(value: &mut Value) {
    match value {
        Value::Array(parts) => parts.iter_mut().for_each(to_plain),
        Value::Object(fields) => match special(fields) {
            Some(plain) => *value = plain,
            None => fields.values_mut().for_each(to_plain),
        },
        _ => {}
    }
}

fn special(fields: &Map<String, Value>) -> Option<Value> {
    let (kind, text) = fields.iter().next().filter(|_| fields.len() == 1)?;
    if kind == "$a" {
        return lists(text);
    }
    let text = text.as_str()?;
    match (&**kind, text.parse::<i64>()) {
        ("$i", Ok(integer)) => Some(integer.into()),
        ("$i" | "$f", _) => {
            let number: f64 = text.parse().ok()?;
            float(number)
        }
        // Routines get the path of the local file.
        ("$resource", _) => Some(text.into()),
        _ => None,
    }
}

fn float(number: f64) -> Option<Value> {
    serde_json::Number::from_f64(number.clamp(f64::MIN, f64::MAX)).map(Value::Number)
}

/// Returns the lists of numbers of an array, or `None` if it is damaged or exceeds a limit.
fn lists(array: &Value) -> Option<Value> {
    let data = BASE64.decode(array["data"].as_str()?.as_bytes()).ok()?;
    let (kind, bits) = array["dtype"].as_str()?.split_at_checked(1)?;
    let bits: usize = bits.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
    let shape = array["shape"].as_array().filter(|shape| shape.len() <= DIMENSIONS_MAX)?;
    let shape: Vec<_> =
        shape.iter().map(|length| usize::try_from(length.as_u64()?).ok()).collect::<Option<_>>()?;
    let bytes = shape.iter().try_fold(bits / 8, |bytes, length| bytes.checked_mul(*length))?;
    if bytes != data.len() || bytes / (bits / 8) * shape.len() > VALUES_MAX {
        return None;
    }
    let number = |bytes: &[u8]| {
        let is_negative = kind == "i" && bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        match (kind, bits) {
            ("i", _) => Some(i64::from_le_bytes(wide).into()),
            ("u", _) => Some(u64::from_le_bytes(wide).into()),
            ("f", 64) => Some(float(f64::from_le_bytes(wide)).unwrap_or_else(|| json!({ "$f": "nan" }))),
            ("f", 32) => {
                let number = f32::from_le_bytes(bytes.try_into().ok()?);
                Some(float(number.into()).unwrap_or_else(|| json!({ "$f": "nan" })))
            }
            _ => None,
        }
    };
    let mut parts = data.chunks_exact(bits / 8).map(number).collect::<Option<Vec<Value>>>()?;
    for &length in shape.iter().skip(1).rev() {
        let mut elements = parts.into_iter();
        let row = || Some(elements.by_ref().take(length).collect::<Vec<_>>()).filter(|row| !row.is_empty());
        parts = std::iter::from_fn(row).map(Value::from).collect();
    }
    if shape.is_empty() { parts.pop() } else { Some(parts.into()) }
}

#[cfg(test)]
mod tests {
    use super::{super::parse, *};

    #[test]
    fn array_is_lists_of_its_numbers() {
        let of = |json: &str| parse(json).unwrap();
        let array = |dtype: &str, shape: &str, data: &str| {
            of(&format!(r#"{{"$a":{{"dtype":"{dtype}","shape":{shape},"data":"{data}"}}}}"#))
        };
        assert_eq!(array("i16", "[2,2]", "AQD+/wMA/P8="), json!([[1, -2], [3, -4]]));
        assert_eq!(array("u64", "[1]", "//////////8="), json!([u64::MAX]));
        assert_eq!(array("f64", "[1,1,2]", "AAAAAAAA+D8AAAAAAADw/w=="), json!([[[1.5, f64::MIN]]]));
        assert_eq!(array("u8", "[0]", ""), json!([]));
        for (dtype, shape, data) in [
            ("f16", "[1]", "AAA="),
            ("i8", "[2]", "AA=="),
            ("i8", "[1]", "AA"),
            ("i8", "[-1]", ""),
            ("u8", "[4294967296,4294967296]", ""),
        ] {
            assert!(array(dtype, shape, data).is_object(), "{dtype} {shape} {data}");
        }
    }

    #[test]
    fn array_with_too_many_dimensions_or_values_is_no_list() {
        let array = |length: usize, dimensions: usize| {
            let shape = [&[length][..], &vec![1; dimensions - 1]].concat();
            let array = json!({ "dtype": "u8", "shape": shape, "data": BASE64.encode(&vec![7; length]) });
            parse(&json!({ "$a": array }).to_string()).unwrap()
        };
        assert_eq!(array(1, DIMENSIONS_MAX), (1..DIMENSIONS_MAX).fold(json!([7]), |inner, _| json!([inner])));
        let many = VALUES_MAX / DIMENSIONS_MAX + 1;
        for (length, dimensions) in [(1, DIMENSIONS_MAX + 1), (1, 100_000), (many, DIMENSIONS_MAX)] {
            assert!(array(length, dimensions).is_object(), "{length}, {dimensions}");
        }
    }
}
