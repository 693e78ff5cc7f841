//! The items that a task becomes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{ItemFn, spanned::Spanned as _};

use crate::{
    options::Options,
    signature::{Access, Made, Parameter, Returned, Signature},
};

/// Returns the struct and the function of a task.
pub(crate) fn task(function: &ItemFn, signature: &Signature, options: &Options, code: &str) -> TokenStream {
    let name = &function.sig.ident;
    let (visible, documented) = (&function.vis, &function.attrs);
    let documented =
        documented.iter().filter(|attribute| attribute.path().is_ident("doc")).collect::<Vec<_>>();
    let now = now(function);
    let (run, body) = run(signature);
    let (default_outputs, has_default_outputs) = default_outputs(signature, options);
    let parameters: Vec<_> = signature.parameters.iter().map(parameter).collect();
    let names: Vec<_> = signature.parameters.iter().map(|parameter| &parameter.name).collect();
    let passes = signature.parameters.iter().map(pass);
    let (handles, made) = (handles(&signature.returned), made(&signature.returned));
    let types = described(signature);
    let title = name.to_string();
    let of_options = format!("The options of a call of the task `{name}`, and what is known of it.");
    quote! {
        #[doc = #of_options]
        #[allow(non_camel_case_types, reason = "it has the name of the function")]
        #[derive(Debug, Clone)]
        #visible struct #name {
            options: ::dataflow_framework::Options,
        }

        impl #name {
            /// The task, as it stands in the table of the program.
            #visible const TASK: ::dataflow_framework::TaskDef = ::dataflow_framework::TaskDef {
                name: #title,
                module: ::core::module_path!(),
                signature: #types,
                code: #code,
                options: #options,
                run: #body,
                default_outputs: #has_default_outputs,
            };

            #now

            #default_outputs

            #run

            /// Returns the options of a call, which are those of the task at first.
            #[allow(dead_code, reason = "a program may call it without options only")]
            #visible fn with() -> Self {
                Self { options: Self::TASK.options }
            }

            /// Calls the task with these options.
            #visible fn call(self #(, #parameters)*) -> #handles {
                #[allow(unused_mut, reason = "a task may have no parameters")]
                let mut call = ::dataflow_framework::__private::Calling::of(&Self::TASK, self.options);
                #(#passes)*
                #made
            }
        }

        impl ::dataflow_framework::__private::IsTask for #name {
            const TASK: &'static ::dataflow_framework::TaskDef = &#name::TASK;
        }

        ::dataflow_framework::__options!(#name #visible);

        #(#documented)*
        #visible fn #name(#(#parameters),*) -> #handles {
            #name::with().call(#(#names),*)
        }
    }
}

/// Returns the function as it was written, by the name `now`.
fn now(function: &ItemFn) -> TokenStream {
    let ItemFn { attrs, vis, sig, block } = function;
    let mut signature = sig.clone();
    signature.ident = format_ident!("now", span = sig.ident.span());
    quote! {
        #(#attrs)*
        #[allow(clippy::trivially_copy_pass_by_ref, clippy::needless_pass_by_value, clippy::ptr_arg,
            reason = "the types say what is read and written")]
        #vis #signature #block
    }
}

/// Returns the function that runs a call, and its kind: it takes the arguments, calls the function, and stores the outputs.
fn run(Signature { parameters, returned, future }: &Signature) -> (TokenStream, TokenStream) {
    // A parameter may be named `call` or `outputs`.
    let takes = parameters.iter().map(|Parameter { name, access, of }| match access {
        Access::Read => quote!(let #name = __call.read::<#of>()?;),
        Access::ReadAll => quote!(let #name = __call.read_all::<#of>()?;),
        Access::Update => quote!(let mut #name = __call.update::<#of>()?;),
        Access::Copy => quote!(let #name = __call.copied::<#of>()?;),
    });
    let lists = parameters.iter().filter(|parameter| parameter.access == Access::ReadAll);
    let lists = lists.map(|Parameter { name, of, .. }| {
        quote!(let #name: ::std::vec::Vec<&#of> = #name.iter().map(|one| &**one).collect();)
    });
    let arguments = parameters.iter().map(|Parameter { name, access, .. }| match access {
        Access::Read | Access::ReadAll => quote!(&#name),
        Access::Update => quote!(&mut #name),
        Access::Copy => quote!(#name),
    });
    let updated = parameters.iter().filter(|parameter| parameter.access == Access::Update);
    let updated = updated.map(|Parameter { name, .. }| quote!(__outputs.put(#name);));
    let Returned { results, is_tuple, may_fail } = returned;
    let names: Vec<_> = (0..results.len()).map(|number| format_ident!("result_{number}")).collect();
    let puts = results.iter().zip(&names).map(|(made, name)| {
        if made.is_handed_on { quote!(#name.hand_on(__outputs)?;) } else { quote!(__outputs.put(#name);) }
    });
    let pattern = match &names[..] {
        [] => quote!(()),
        [name] if !is_tuple => quote!(#name),
        names => quote!((#(#names,)*)),
    };
    let checked =
        if *may_fail { quote!(.map_err(::dataflow_framework::__private::Failed::of)?) } else { quote!() };
    let awaited = future.map(|_| quote!(.await));
    let body = quote! {
        #(#lists)*
        let #pattern = Self::now(#(#arguments),*)#awaited #checked;
        #(#updated)*
        #(#puts)*
    };
    let private = quote!(::dataflow_framework::__private);
    let (kind, result, body) = if future.is_some() {
        let body = quote! {
            ::core::result::Result::Ok(::std::boxed::Box::pin(async move {
                let mut __outputs = #private::Outputs::default();
                #body
                ::core::result::Result::Ok(__outputs)
            }))
        };
        (quote!(Future), quote!(#private::CallFuture), body)
    } else {
        let body = quote! {
            let __outputs = __call;
            #body
            ::core::result::Result::Ok(())
        };
        (quote!(Thread), quote!(()), body)
    };
    let function = quote! {
        fn run(
            __call: &mut #private::Invocation<'_>,
        ) -> ::core::result::Result<#result, #private::Failed> {
            #(#takes)*
            #body
        }
    };
    (function, quote!(#private::Body::#kind(Self::run)))
}

/// Returns the function that writes the default outputs of a call with an ignored failure, and its name; nothing if
/// failures are not ignored.
fn default_outputs(
    Signature { parameters, returned, .. }: &Signature,
    options: &Options,
) -> (TokenStream, TokenStream) {
    if !options.ignores() {
        return (quote!(), quote!(::core::option::Option::None));
    }
    let takes = parameters.iter().map(|Parameter { name, access, of }| match access {
        Access::Read => quote!(call.read::<#of>()?;),
        Access::ReadAll => quote!(call.read_all::<#of>()?;),
        Access::Update => quote!(let #name = call.update::<#of>()?;),
        Access::Copy => quote!(call.copied::<#of>()?;),
    });
    let updated = parameters.iter().filter(|parameter| parameter.access == Access::Update);
    let updated = updated.map(|Parameter { name, .. }| quote!(call.put(#name);));
    // With the span of the type, so that the compiler reports a type without a default there.
    let results = returned
        .results
        .iter()
        .map(|Made { of, .. }| quote_spanned!(of.span()=> call.put::<#of>(<#of as ::core::default::Default>::default());));
    let function = quote! {
        fn default_outputs(
            call: &mut ::dataflow_framework::__private::Invocation<'_>,
        ) -> ::core::result::Result<(), ::dataflow_framework::__private::Failed> {
            #(#takes)*
            #(#updated)*
            #(#results)*
            ::core::result::Result::Ok(())
        }
    };
    (function, quote!(::core::option::Option::Some(Self::default_outputs)))
}

pub(crate) fn parameter(Parameter { name, access, of }: &Parameter) -> TokenStream {
    match access {
        Access::Read => quote!(#name: &::dataflow_framework::Data<#of>),
        Access::ReadAll => quote!(#name: &[::dataflow_framework::Data<#of>]),
        Access::Update => quote!(#name: &mut ::dataflow_framework::Data<#of>),
        Access::Copy => quote!(#name: #of),
    }
}

fn pass(Parameter { name, access, .. }: &Parameter) -> TokenStream {
    match access {
        Access::Read => quote!(call.read(#name);),
        Access::ReadAll => quote!(call.read_all(#name);),
        Access::Update => quote!(call.update(#name);),
        Access::Copy => quote!(call.copy(&#name);),
    }
}

/// Returns the type that a call returns: a handle for each result.
pub(crate) fn handles(Returned { results, is_tuple, .. }: &Returned) -> TokenStream {
    let handles = results.iter().map(|Made { of, .. }| quote!(::dataflow_framework::Data<#of>));
    match (results.len(), is_tuple) {
        (0, _) => quote!(()),
        (1, false) => quote!(#(#handles)*),
        _ => quote!((#(#handles,)*)),
    }
}

fn made(Returned { results, is_tuple, .. }: &Returned) -> TokenStream {
    let names: Vec<_> = (0..results.len()).map(|number| format_ident!("result_{number}")).collect();
    let types = results.iter().map(|made| &made.of);
    let handles = quote! {
        #(let #names = call.result::<#types>();)*
        call.submit();
    };
    match (&names[..], is_tuple) {
        ([], _) => handles,
        ([name], false) => quote!(#handles #name),
        (names, _) => quote!(#handles (#(#names,)*)),
    }
}

/// Returns the types as a text, by which nodes detect that their programs differ.
fn described(Signature { parameters, returned, .. }: &Signature) -> String {
    let parameters = parameters.iter().map(|Parameter { access, of, .. }| {
        let (before, after) = match access {
            Access::Read => ("&", ""),
            Access::ReadAll => ("&[&", "]"),
            Access::Update => ("&mut ", ""),
            Access::Copy => ("", ""),
        };
        format!("{before}{}{after}", quote!(#of))
    });
    let parameters: Vec<_> = parameters.collect();
    let results = returned.results.iter().map(|made| &made.of);
    format!("({}) -> {}", parameters.join(", "), quote!((#(#results),*)))
}
