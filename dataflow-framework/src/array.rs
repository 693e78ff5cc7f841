//! Arrays of numbers, which are transferred as raw bytes.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut, Index, IndexMut, Range},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, SeqAccess, Visitor},
    ser::SerializeTuple as _,
};

/// The element types of an [`Array`]: numbers of a fixed size.
pub trait Element: bytemuck::Pod + Send + Sync {}

impl<T: bytemuck::Pod + Send + Sync> Element for T {}

/// An array of numbers with any number of dimensions, the last of which is contiguous.
///
/// It is encoded as its bytes, while a `Vec` is encoded number by number. So large data is copied and transferred at
/// the lowest cost.
///
/// # Examples
/// ```
/// use dataflow_framework::Array;
///
/// let mut table = Array::filled([2, 3], 0.5);
/// table[[1, 2]] = 4.0;
/// assert_eq!(table.shape(), [2, 3]);
/// assert_eq!(table.row(1), [0.5, 0.5, 4.0]);
/// assert_eq!(table.iter().sum::<f64>(), 6.5);
/// ```
#[derive(Clone, PartialEq)]
pub struct Array<T> {
    shape: Vec<usize>,
    elements: Vec<T>,
}

impl<T: Element> Array<T> {
    /// Creates an array of this shape, in which every element is `element`.
    ///
    /// # Panics
    /// If it exceeds the address space.
    pub fn filled(shape: impl Into<Vec<usize>>, element: T) -> Self {
        let shape = shape.into();
        let length = length(&shape).expect("an array has fewer elements than a machine has addresses");
        Self { shape, elements: vec![element; length] }
    }

    /// Creates an array of this shape from its elements, with a contiguous last dimension.
    ///
    /// # Panics
    /// If the shape does not match the number of elements.
    pub fn from_elements(shape: impl Into<Vec<usize>>, elements: Vec<T>) -> Self {
        let shape = shape.into();
        assert_eq!(
            length(&shape),
            Some(elements.len()),
            "the number of elements of an array of shape {shape:?}"
        );
        Self { shape, elements }
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the elements, with a contiguous last dimension.
    pub fn into_elements(self) -> Vec<T> {
        self.elements
    }

    /// Returns the elements with this index in the first dimension: in two dimensions, a row.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn row(&self, index: usize) -> &[T] {
        &self.elements[self.range(index)]
    }

    /// Returns the elements with this index in the first dimension, for modification.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn row_mut(&mut self, index: usize) -> &mut [T] {
        let range = self.range(index);
        &mut self.elements[range]
    }

    fn range(&self, index: usize) -> Range<usize> {
        let size = self.shape.first().copied().unwrap_or(0);
        assert!(index < size, "index {index} of {size}");
        let length = self.elements.len() / size;
        index * length..(index + 1) * length
    }

    fn position<const N: usize>(&self, index: [usize; N]) -> usize {
        assert_eq!(self.shape.len(), N, "the number of dimensions");
        let mut position = 0;
        for (index, size) in index.iter().zip(&self.shape) {
            assert!(index < size, "index {index} of {size}");
            position = position * size + index;
        }
        position
    }
}

/// Returns the number of elements, or `None` on overflow.
fn length(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |length, size| length.checked_mul(*size))
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements
    }
}

impl<T> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for Array<T> {
    type Output = T;

    fn index(&self, index: [usize; N]) -> &T {
        &self.elements[self.position(index)]
    }
}

impl<T: Element, const N: usize> IndexMut<[usize; N]> for Array<T> {
    fn index_mut(&mut self, index: [usize; N]) -> &mut T {
        let position = self.position(index);
        &mut self.elements[position]
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<T: Element> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&self.shape)?;
        pair.serialize_element(&Raw(bytemuck::cast_slice(&self.elements)))?;
        pair.end()
    }
}

impl<'de, T: Element> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, ArrayVisitor(PhantomData))
    }
}

struct ArrayVisitor<T>(PhantomData<T>);

impl<'de, T: Element> Visitor<'de> for ArrayVisitor<T> {
    type Value = Array<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shape and the bytes of an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Array<T>, A::Error> {
        let shape: Vec<usize> = pair.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let Elements(elements) = pair.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        if length(&shape) != Some(elements.len()) {
            return Err(A::Error::custom(format!(
                "{} elements of an array of shape {shape:?}",
                elements.len()
            )));
        }
        Ok(Array { shape, elements })
    }
}

/// Bytes, encoded as one element.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Elements decoded from bytes.
struct Elements<T>(Vec<T>);

impl<'de, T: Element> Deserialize<'de> for Elements<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(ElementsVisitor(PhantomData))
    }
}

struct ElementsVisitor<T>(PhantomData<T>);

impl<T: Element> Visitor<'_> for ElementsVisitor<T> {
    type Value = Elements<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes of elements of {} bytes each", size_of::<T>())
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Elements<T>, E> {
        if size_of::<T>() == 0 || !bytes.len().is_multiple_of(size_of::<T>()) {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(Elements(bytemuck::allocation::pod_collect_to_vec(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::Array;
    use crate::encoding::{decode, encode};

    #[test]
    fn array_is_encoded_as_its_bytes() {
        let array = Array::from_elements([2, 3], vec![1.0, -2.5, f64::MAX, f64::MIN_POSITIVE, 0.0, 7.0]);
        let bytes = encode(&array).expect("it can be");
        // The number of dimensions, two sizes and the number of bytes take one byte each.
        assert_eq!(bytes.len(), 4 + 6 * 8);
        assert_eq!(decode::<Array<f64>>(&bytes).expect("it was encoded"), array);
    }

    #[test]
    fn bytes_that_do_not_match_the_shape_are_refused() {
        for shape in [vec![3_usize], vec![2, 2], vec![usize::MAX, usize::MAX]] {
            let bytes = encode(&(shape, vec![0_u8; 16])).expect("it can be");
            let error = decode::<Array<f64>>(&bytes).expect_err("there are two elements");
            assert!(error.reason.contains("2 elements of an array of shape"), "{}", error.reason);
        }
        let bytes = encode(&(vec![1_usize], vec![0_u8; 9])).expect("it can be");
        let error = decode::<Array<f64>>(&bytes).expect_err("an element has eight bytes");
        assert!(error.reason.contains("elements of 8 bytes each"), "{}", error.reason);
        decode::<Array<f64>>(&[2, 1]).expect_err("it is cut off");
    }

    #[test]
    #[should_panic(expected = "index 3 of 3")]
    fn index_out_of_range_panics() {
        let _ = Array::filled([2, 3], 0_u32)[[0, 3]];
    }
}
