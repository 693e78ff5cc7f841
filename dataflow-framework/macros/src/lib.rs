//! The attributes `task` and `program` of `dataflow-framework`, where they are documented.
//!
//! A function with the attribute `task` becomes two items of its name: a function that calls the task, and a struct that
//! holds the task's description, and the options of a call. `signature.rs` reads the function, `expand.rs` writes the
//! items, `options.rs` and `constraints.rs` read the attribute's arguments, and `methods.rs` makes functions of methods.
//! `code.rs` hashes the code of a task.
//! `program.rs` writes the program type and the command line of a function with the attribute `program`.

mod code;
mod constraints;
mod expand;
mod methods;
mod options;
mod program;
mod signature;

use proc_macro::TokenStream;
use syn::{Error, Item, ItemFn, parse_macro_input, spanned::Spanned as _};

/// Makes a function a task, or marked methods of a type. See the front page of `dataflow-framework`.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(arguments as options::Options);
    match parse_macro_input!(item as Item) {
        Item::Fn(function) => of_function(&function, &options),
        Item::Impl(methods) if options.are_none() => {
            methods::tasks(methods).unwrap_or_else(Error::into_compile_error).into()
        }
        Item::Impl(methods) => {
            let reason = "options stand with each method, `#[task(retry = 3)]`, and not with the `impl`";
            Error::new(methods.self_ty.span(), reason).into_compile_error().into()
        }
        other => {
            let reason = "a task is a function, or an `impl` whose methods are tasks";
            Error::new(other.span(), reason).into_compile_error().into()
        }
    }
}

/// Makes a function a program with a command line. See the module `cli` of `dataflow-framework`.
#[proc_macro_attribute]
pub fn program(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let tasks = parse_macro_input!(arguments as program::Tasks);
    let function = parse_macro_input!(item as ItemFn);
    program::program(&tasks, function).unwrap_or_else(Error::into_compile_error).into()
}

fn of_function(function: &ItemFn, options: &options::Options) -> TokenStream {
    let signature = signature::Signature::read(function);
    match signature.and_then(|signature| options.check(&signature).map(|()| signature)) {
        Ok(signature) => {
            let code = code::hash(&options.version(), &function.attrs, &function.sig, &function.block);
            expand::task(function, &signature, options, &code).into()
        }
        Err(error) => {
            // The function itself stays, so that its uses are no errors, too.
            let error = error.into_compile_error();
            quote::quote!(#error #function).into()
        }
    }
}
