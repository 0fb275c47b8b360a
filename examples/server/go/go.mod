module weir.example

go 1.19
