; Where a shell sets a variable.
(variable_assignment name: [(variable_name) @set (subscript name: (variable_name) @set)])
(for_statement variable: (variable_name) @set)
(postfix_expression . (_) @set)
(unary_expression [(variable_name) (word)] @set)
(binary_expression . (variable_name) @set)
((command name: (command_name) @_name argument: (word) @set)
  (#any-of? @_name "read" "mapfile" "readarray" "getopts" "printf" "let"))

; Each place where a variable stands.
(variable_name) @named

; Commands whose output is taken by $(...).
(command_substitution (command) @hidden)
