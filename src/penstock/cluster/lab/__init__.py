"""The lab: machines that are really apart on one computer, with a link and a share of the cores each."""
