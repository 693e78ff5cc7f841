//! The inputs and outputs of a task, according to the types of its function.

use syn::{
    Error, FnArg, GenericArgument, GenericParam, Ident, ItemFn, Pat, PathArguments, Result, ReturnType,
    Token, Type, TypePath, parse_quote, spanned::Spanned as _,
};

const LIFETIME: &str = "what a task reads lives as long as its call: leave the lifetime out";

/// The types of a function.
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returned: Returned,
    /// The word `async`, if the body is a future.
    pub(crate) future: Option<Token![async]>,
}

pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) access: Access,
    /// The type of the data, without the reference; of a slice that of its owner.
    pub(crate) of: Type,
}

/// The use of a parameter by a task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// `&T`, `&[T]` or `&str`: a version is read.
    Read,
    /// `&[&T]`: any number of versions are read.
    ReadAll,
    /// `&mut T`: a version is read, and the next one written.
    Update,
    /// `T`: copied into the call.
    Copy,
}

/// The outputs of a task.
pub(crate) struct Returned {
    /// The results: none, one, or those of a tuple.
    pub(crate) results: Vec<Made>,
    pub(crate) is_tuple: bool,
    /// Whether they come in a `Result`.
    pub(crate) may_fail: bool,
}

/// A result of a task.
pub(crate) struct Made {
    /// The type of the data.
    pub(crate) of: Type,
    /// Whether the task returns a handle: its output is forwarded from one of its calls.
    pub(crate) is_handed_on: bool,
}

impl Signature {
    pub(crate) fn read(function: &ItemFn) -> Result<Self> {
        let signature = &function.sig;
        if let Some(word) = &signature.unsafety {
            return Err(Error::new(word.span(), "a task cannot be unsafe: other nodes call it"));
        }
        let is_lifetime = |parameter: &GenericParam| matches!(parameter, GenericParam::Lifetime(_));
        if signature.generics.params.iter().any(is_lifetime) {
            return Err(Error::new(signature.generics.span(), LIFETIME));
        }
        if !signature.generics.params.is_empty() {
            return Err(Error::new(
                signature.generics.span(),
                "a task cannot be generic, since other nodes find it by its name: write a task for each type, which \
                 may call a generic function",
            ));
        }
        if let Some(dots) = &signature.variadic {
            return Err(Error::new(dots.span(), "a task has a fixed number of parameters"));
        }
        let parameters = signature.inputs.iter().map(Parameter::read).collect::<Result<_>>()?;
        let returned = Returned::read(&signature.output)?;
        if let Some(word) =
            signature.asyncness.filter(|_| returned.results.iter().any(|made| made.is_handed_on))
        {
            return Err(Error::new(
                word.span(),
                "an `async` task makes no calls, so it has no handle to return: return the data, or leave `async` out and \
                 call an `async` task for the part that waits",
            ));
        }
        Ok(Self { parameters, returned, future: signature.asyncness })
    }
}

impl Parameter {
    fn read(argument: &FnArg) -> Result<Self> {
        let argument = match argument {
            FnArg::Receiver(receiver) => {
                return Err(Error::new(
                    receiver.span(),
                    "a task is a free function: take the value as its first parameter",
                ));
            }
            FnArg::Typed(argument) => argument,
        };
        let Pat::Ident(pattern) = &*argument.pat else {
            return Err(Error::new(argument.pat.span(), "a parameter of a task needs a name"));
        };
        let name = pattern.ident.clone();
        let (access, of) = access(&argument.ty)?;
        Ok(Self { name, access, of })
    }
}

fn access(of: &Type) -> Result<(Access, Type)> {
    let reference = match ungrouped(of) {
        Type::Reference(reference) => reference,
        Type::ImplTrait(_) => {
            return Err(Error::new(
                of.span(),
                "a task cannot be generic, since other nodes find it by its name",
            ));
        }
        of => return Ok((Access::Copy, of.clone())),
    };
    if let Some(lifetime) = &reference.lifetime {
        return Err(Error::new(lifetime.span(), LIFETIME));
    }
    let of = ungrouped(&reference.elem);
    match of {
        Type::Slice(slice) if reference.mutability.is_some() => {
            Err(Error::new(slice.span(), "a slice cannot be updated as data: take `&mut Vec<T>`"))
        }
        Type::Slice(slice) => match ungrouped(&slice.elem) {
            Type::Reference(element) if element.mutability.is_some() => {
                Err(Error::new(slice.span(), "several data can only be read: take `&[&T]`"))
            }
            Type::Reference(element) => Ok((Access::ReadAll, (*element.elem).clone())),
            element => Ok((Access::Read, parse_quote!(::std::vec::Vec<#element>))),
        },
        Type::Path(TypePath { qself: None, path }) if path.is_ident("str") => {
            if reference.mutability.is_some() {
                return Err(Error::new(of.span(), "a text cannot be updated as `str`: take `&mut String`"));
            }
            Ok((Access::Read, parse_quote!(::std::string::String)))
        }
        Type::TraitObject(_) => Err(Error::new(of.span(), "data has a type of its own, not `dyn`")),
        of if reference.mutability.is_some() => Ok((Access::Update, of.clone())),
        of => Ok((Access::Read, of.clone())),
    }
}

impl Returned {
    fn read(output: &ReturnType) -> Result<Self> {
        let (of, may_fail) = returned(output);
        Self::results(&of, may_fail)
    }

    fn results(of: &Type, may_fail: bool) -> Result<Self> {
        if let Type::Reference(_) = of {
            return Err(Error::new(of.span(), "a task returns what it has made, not a reference"));
        }
        let (results, is_tuple) = match of {
            Type::Tuple(tuple) => (tuple.elems.iter().map(Made::of).collect(), !tuple.elems.is_empty()),
            of => (vec![Made::of(of)], false),
        };
        Ok(Self { results, is_tuple, may_fail })
    }
}

/// Returns the type of the returned value, and whether it is in a `Result`.
pub(crate) fn returned(output: &ReturnType) -> (Type, bool) {
    let ReturnType::Type(_, of) = output else { return (parse_quote!(()), false) };
    let of = ungrouped(of);
    success(of).map_or_else(|| (of.clone(), false), |of| (of, true))
}

/// Returns a type without the groups that `macro_rules` adds.
pub(crate) fn ungrouped(of: &Type) -> &Type {
    match of {
        Type::Group(group) => ungrouped(&group.elem),
        of => of,
    }
}

impl Made {
    fn of(of: &Type) -> Self {
        match argument(of, "Data") {
            Some(of) => Self { of, is_handed_on: true },
            None => Self { of: of.clone(), is_handed_on: false },
        }
    }
}

/// Returns the type of success if this is a `Result`, which is recognised by its name.
fn success(of: &Type) -> Option<Type> {
    argument(of, "Result")
}

/// Returns the first argument of a generic type of this name.
fn argument(of: &Type, name: &str) -> Option<Type> {
    let Type::Path(TypePath { qself: None, path }) = of else { return None };
    let last = path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(of) if last.ident == name => Some(of.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::{ItemFn, parse_quote};

    use super::{Access, Signature};

    #[test]
    fn parameter_types_determine_access() {
        let function: ItemFn = parse_quote! {
            fn task(
                a: &Block, b: &mut Vec<u8>, all: &[&f64], list: &[u8], text: &str, number: u32
            ) -> io::Result<(Block, String)> {}
        };
        let Ok(signature) = Signature::read(&function) else { panic!("it is a task") };
        let accesses = signature.parameters.iter().map(|parameter| {
            let of = &parameter.of;
            (parameter.access, quote!(#of).to_string())
        });
        let expected = [
            (Access::Read, "Block"),
            (Access::Update, "Vec < u8 >"),
            (Access::ReadAll, "f64"),
            (Access::Read, ":: std :: vec :: Vec < u8 >"),
            (Access::Read, ":: std :: string :: String"),
            (Access::Copy, "u32"),
        ];
        assert!(accesses.eq(expected.map(|(access, of)| (access, of.to_owned()))));
        assert!(signature.returned.may_fail && signature.returned.is_tuple);
        assert_eq!(signature.returned.results.len(), 2);
    }

    #[test]
    fn returned_handle_counts_as_its_data() {
        let function: ItemFn = parse_quote! {
            fn task(a: &Block) -> Result<(framework::Data<Block>, String), E> {}
        };
        let Ok(signature) = Signature::read(&function) else { panic!("it is a task") };
        let results = signature.returned.results.iter().map(|made| {
            let of = &made.of;
            (quote!(#of).to_string(), made.is_handed_on)
        });
        assert!(results.eq([("Block".to_owned(), true), ("String".to_owned(), false)]));
    }

    #[test]
    fn unit_return_types_have_no_outputs() {
        let functions: [ItemFn; 3] = [
            parse_quote!(
                fn task() {}
            ),
            parse_quote!(
                fn task() -> () {}
            ),
            parse_quote!(
                fn task() -> Result<(), E> {}
            ),
        ];
        for function in &functions {
            let Ok(signature) = Signature::read(function) else { panic!("it is a task") };
            assert!(signature.returned.results.is_empty() && !signature.returned.is_tuple);
        }
    }

    #[test]
    fn invalid_task_functions_are_refused_with_reason() {
        for (text, expected) in [
            ("async fn task() -> Data<u8> {}", "return the data, or leave `async` out"),
            ("async fn task() -> Result<(u8, Data<u8>), E> {}", "an `async` task makes no calls"),
            ("unsafe fn task() {}", "cannot be unsafe"),
            ("fn task<T>(of: &T) {}", "cannot be generic"),
            ("fn task(of: impl Send) {}", "cannot be generic"),
            ("fn task(&self) {}", "free function"),
            ("fn task((a, b): (u8, u8)) {}", "needs a name"),
            ("fn task(of: &'static u8) {}", "leave the lifetime out"),
            ("fn task<'a>(of: &'a u8) {}", "leave the lifetime out"),
            ("fn task(of: &mut [u8]) {}", "take `&mut Vec<T>`"),
            ("fn task(of: &mut [&u8]) {}", "take `&mut Vec<T>`"),
            ("fn task(of: &[&mut u8]) {}", "take `&[&T]`"),
            ("fn task(of: &mut str) {}", "take `&mut String`"),
            ("fn task(of: &dyn Send) {}", "not `dyn`"),
            ("fn task(of: &u8) -> &u8 {}", "not a reference"),
        ] {
            let function: ItemFn = syn::parse_str(text).expect("it is a function");
            let Err(error) = Signature::read(&function) else { panic!("{text} is a task") };
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }
}
