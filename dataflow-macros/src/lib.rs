//! The attribute `task` of `dataflow-framework`, where it is documented.
//!
//! A function with the attribute becomes two items of its name: a function that calls the task, and a struct that
//! holds the task's description, and the options of a call. `signature.rs` reads the function, `expand.rs` writes the
//! items, `options.rs` reads the attribute's arguments.

mod expand;
mod options;
mod signature;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

/// Makes a function a task. See the front page of `dataflow-framework`.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(arguments as options::Options);
    let function = parse_macro_input!(item as ItemFn);
    match signature::Signature::read(&function) {
        Ok(signature) => expand::task(&function, &signature, &options).into(),
        Err(error) => {
            // The function itself stays, so that its uses are no errors, too.
            let error = error.into_compile_error();
            quote::quote!(#error #function).into()
        }
    }
}
