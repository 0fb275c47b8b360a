from weir._weir import *
